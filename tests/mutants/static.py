"""The guards of ``static``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant(
        "live: a page shows no page but its own",
        "static/txtasks/live.js",
        {"if (found?.dataset.txtasksLive !== part.dataset.txtasksLive ||": "if (!found ||"},
        "test_live.py::test_an_old_copy_and_another_page_of_the_site_are_not_shown",
    ),
    Mutant(
        "live: a page shows no old copy of itself",
        "static/txtasks/live.js",
        {"found.dataset.asked !== asked": "false"},
        "test_live.py::test_an_old_copy_and_another_page_of_the_site_are_not_shown",
    ),
    Mutant(
        "live: a page says that it was not renewed",
        "static/txtasks/live.js",
        {"if (missed < TRIES) return;": "return;"},
        "test_live.py::test_at_a_glance_says_what_came_in_its_place",
    ),
    Mutant(
        "live: a try ends although the site hangs",
        "static/txtasks/live.js",
        {"reject(new Error(texts.slow));\n            request.abort();": "return;"},
        "test_live.py::test_a_site_that_hangs_is_told",
    ),
    Mutant(
        "live: a page with the focus inside says so",
        "static/txtasks/live.js",
        {"if (hasFocus()) return miss(texts.focus);": "if (hasFocus()) return;"},
        "test_live.py::test_a_link_with_the_focus_keeps_the_page_as_it_is_and_the_page_says_so",
    ),
]
