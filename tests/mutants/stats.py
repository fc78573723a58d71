"""The guards of ``stats``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("figures: readers see rows that are not added up", "stats/reading.py",
           {"WHERE 1 = 1 <raw>": "WHERE 1 = 0 <raw>"},
           "test_figures.py::test_all_widths_agree_with_what_was_appended"),
    Mutant("metrics: the counters come from one statement", "stats/reading.py",
           {"    read = fetch(alias, sql, limit=MAX_RAW_ROWS + 1, **params)":
            "    limit = MAX_RAW_ROWS + 1\n"
            "    read = [one for one in fetch(alias, sql, limit=limit, **params) if not one[0]]\n"
            "    read += [one for one in fetch(alias, sql, limit=limit, **params) if one[0]]"},
           "test_metrics.py::test_the_counters_come_from_one_statement"),
    Mutant("metrics: added up and not added up in one statement", "stats/reading.py",
           {"             UNION ALL\n": "             EXCEPT ALL\n"},
           "test_metrics.py::test_counters_have_what_is_added_up_and_what_is_not"),
    Mutant("causes: a lost worker runs no release", "stats/releases.py",
           {"filter(lost=False).exclude": "exclude"},
           "test_admin_causes.py::test_the_question_warns_while_workers_run_the_release_that_fails"),
    Mutant("causes: since the release that ran the task, not the one at its due time", "stats/by_cause.py",
           {"oldest.started_at or oldest.run_after": "oldest.run_after"},
           "test_stats_by_cause.py::test_a_cause_names_the_release_that_was_the_newest_when_its_first_task_ran"),
    Mutant("causes: times that Python cannot read are compared", "stats/by_cause.py",
           {"key=lambda row: (row.run_after or LONG_AGO, row.pk)": "key=lambda row: (row.run_after, row.pk)"},
           "test_bad_times.py::test_pages_and_commands_show_it"),
    Mutant("causes: PostgreSQL finds a bounded number", "stats/statements.py",
           {"SELECT * FROM places LIMIT %(most)s": "SELECT * FROM places"},
           "test_stats_by_cause.py::test_probes_end_at_a_limit_and_the_answer_says_so"),
    Mutant("causes: one of which a task has ended stays", "stats/by_cause.py",
           {"        if outer:\n": "        if len(outer) == len(ids):\n"},
           "test_stats_by_cause.py::test_a_cause_stays_in_the_list_though_a_task_of_it_ends_in_the_meantime"),
    Mutant("causes: numbers without all queues are lower bounds", "stats/by_cause.py",
           {"dict.fromkeys(STATES, (0, is_cut))": "dict.fromkeys(STATES, (0, False))"},
           "test_stats_by_cause.py::test_the_numbers_of_a_cause_say_that_not_all_queues_were_read"),
    Mutant("causes: many counts end earlier", "stats/by_cause.py",
           {"MOST_ENTRIES // max(1, len(places))": "MOST_ENTRIES"},
           "test_stats_by_cause.py::test_with_many_causes_each_count_ends_earlier"),
    Mutant("causes: probes are bounded", "stats/by_cause.py",
           {"return self._number < MAX_PROBES": "return True"},
           "test_stats_by_cause.py::test_probes_end_at_a_limit_and_the_answer_says_so", ("MARIADB",)),
    Mutant("cost: it is no figure of a task", "stats/reading.py",
           {'("", OF_PROCESSES)': '("",)'},
           "test_cost.py::test_an_idle_worker_and_a_cleaner_tell_what_they_cost"),
]  # fmt: skip
