"""The guards of ``contrib/otel``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("OpenTelemetry: tasks are counted when they are committed", "contrib/otel/tracer.py",
           {"            transaction.on_commit(": "            (",
            ", using=alias, robust=True\n            )": "\n            )()"},
           "test_traces_otel.py::test_sent_tasks_are_counted_when_their_transaction_commits"),
    Mutant("OpenTelemetry: only a span that records fills the column", "contrib/otel/tracer.py",
           {"    if span.is_recording():": "    if True:"},
           "test_traces_otel.py::test_a_span_that_does_not_record_leaves_the_column_empty"),
]  # fmt: skip
