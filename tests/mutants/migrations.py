"""The guards of ``migrations``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("load: paused queues do not count", "migrations/0001_tables.py",
           {"     WHERE w.queue_name NOT IN (SELECT p.queue_name FROM txtasks_pausedqueue p)\n": ""},
           "test_load_numbers.py::test_what_may_not_start_does_not_count"),
    Mutant("load: expired tasks do not count", "migrations/0001_tables.py",
           {"       AND (row.expires_at IS NULL OR row.expires_at > statement_timestamp())\n     GROUP BY "
            "head.queue_name, row.task_name": "     GROUP BY head.queue_name, row.task_name"},
           "test_load_numbers.py::test_what_may_not_start_does_not_count"),
    Mutant("load: tasks in lanes stand apart", "migrations/0001_tables.py",
           {" WHERE head.lane = '' AND head.run_after": " WHERE head.run_after"},
           "test_load_numbers.py::test_tasks_in_lanes_stand_apart"),
    Mutant("load: a worker runs as many tasks as it has threads", "migrations/0001_tables.py",
           {"LIMIT l.threads": ""}, "test_load_numbers.py::test_a_worker_runs_no_more_tasks_than_it_has_threads"),
    Mutant("load: what runs on an event loop does not count", "migrations/0001_tables.py",
           {"     WHERE l.kind > 0\n": "     WHERE TRUE\n"},
           "test_load_numbers.py::test_waits_on_an_event_loop_want_no_threads"),
    Mutant("load: what is handed over wants no threads", "migrations/0001_tables.py",
           {"pair.queue_name <> ALL (txtasks_handed_queues())": "TRUE"},
           "test_readers_of_rows.py::test_the_view_of_scalers_knows_after_migrate_what_is_handed_over"),
    Mutant("load: more of our workers do not help foreign ones", "migrations/0001_tables.py",
           {"AND s.kind = d.kind\n": "\n"},
           "test_readers_of_rows.py::test_workers_in_other_languages_ask_for_no_workers_of_this_package"),
    Mutant("load: silent workers do not count", "migrations/0001_tables.py",
           {" AND w.seen_at > statement_timestamp() - make_interval(secs => w.lease)": ""},
           "test_load_numbers.py::test_a_silent_or_lost_worker_does_not_count"),
    Mutant("load: the view is where the router keeps the tables", "migrations/0001_tables.py",
           {"bool(connection.vendor == 'postgresql' and self.allow_migrate_model(connection.alias, model))":
            "connection.vendor == 'postgresql'", ", hints={'model_name': 'task'}": ""},
           "test_load_view.py::test_a_router_keeps_it_away"),
    Mutant("load: the view reads only due rows", "migrations/0001_tables.py",
           {"t.status = ANY(ARRAY[head.status]) AND ": ""},
           "test_load_view.py::test_it_reads_only_due_rows_of_each_queue_and_priority"),
    Mutant("load: the view reads a bounded number of rows", "migrations/0001_tables.py",
           {"40000 / GREATEST(1, count(*))": "40000"},
           "test_load_view.py::test_many_queues_and_priorities_read_40_000_rows_together"),
    Mutant("on MariaDB, a claim of a row that never failed changes no entry of the indexes of failed rows",
           "migrations/0001_tables.py",
           {"(CASE WHEN status IN ('dead', 'held') OR (cause IS NOT NULL AND status = 'pending') THEN status END)":
            "(status)"},
           "test_upgrade.py::test_that_column_has_the_status_of_rows_that_failed_or_are_stopped", ("MARIADB",)),
]  # fmt: skip
