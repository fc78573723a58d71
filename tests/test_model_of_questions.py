"""Questions in every order of their steps: see test_model.py. Ours hold, and do not without any of their rules.

The numbers of steps are what was measured; a change of the model that changes one should be meant.
"""

import pytest
from model import questions
from model.checker import SETTLES, check

PEOPLE = (questions.Person("ada"), questions.Person("bob"))


def start(**facts):
    return questions.QuestionState(people=PEOPLE, crashes=1, cancels=1, **facts)


def verdict_of(has_limit=True, tokens=1, deploys=0, **rules):
    """One task that asks two people, with a token or a deploy, a cancel and a crash."""
    return check(
        start(has_limit=has_limit, tokens=tokens, deploys=deploys),
        lambda s: questions.steps(questions.QuestionRules(**rules), s),
        questions.PROPERTIES,
        settled=questions.settled,
    )


BOTH = [{"has_limit": False}, {}, {"tokens": 0, "deploys": 1}]


@pytest.mark.parametrize("scenario", BOTH, ids=str)
def test_the_one_answer_that_counts_is_the_one_that_the_task_gets(scenario):
    verdict = verdict_of(**scenario)
    assert not verdict.traces, str(verdict)
    assert verdict.states > 1000


QUESTIONS_REACH = {
    "an answer of a person": lambda s: "ada" in s.answers,
    "an answer of another person once a hold has ended": lambda s: (
        "bob" in s.answers and s.people[0].at == "gone" and not s.crashes
    ),
    "an answer of a machine": lambda s: questions.MACHINE in s.answers,
    "a token": lambda s: questions.TOKEN in s.answers,
    "a time that passes": lambda s: questions.TOO_LATE in s.answers,
    "an answer in time, though it was over": lambda s: s.is_over and "ada" in s.answers,
    "a person who is heard after the deploy": lambda s: s.has_machine and "ada" in s.answers,
    "a cancel": lambda s: (
        s.status == questions.ENDED and s.question == questions.CLOSED and not s.answers
    ),
}


@pytest.mark.parametrize("name", QUESTIONS_REACH)
def test_questions_do_not_hold_by_doing_nothing(name):
    verdict = check(
        start(has_limit=True, tokens=1, deploys=1),
        lambda s: questions.steps(questions.QuestionRules(), s),
        {"never": lambda s: not QUESTIONS_REACH[name](s)},
        settled=lambda s: True,
        until="never",
    )
    assert verdict.traces


QUESTIONS_FAIL = {
    "the name is written after the value": ({"together": False}, questions.SIGNED, 8),
    "who has it is not looked at": ({"checks_holder": False}, questions.FOR_HOLDER, 6),
    "a refused value stays": ({"rolls_back": False}, questions.TOLD, 9),
    "who answers locks the question first": ({"task_first": False}, SETTLES, 7),
    "a machine answers in the place of people": (
        {"machine_looks": False, "tokens": 0, "deploys": 1},
        questions.HEARD,
        7,
    ),
    "a dead person has it for ever": ({"hold_ends": False, "has_limit": False}, SETTLES, 6),
    "a question that needs no answer stays open": ({"sweeps": False}, SETTLES, 3),
}
OF_SCENARIO = {"tokens", "deploys", "has_limit"}


@pytest.mark.parametrize("name", QUESTIONS_FAIL)
def test_each_rule_of_a_question_is_needed(name):
    changes, broken, steps = QUESTIONS_FAIL[name]
    verdict = verdict_of(**changes)
    assert broken in verdict.traces, str(verdict)
    assert len(verdict.traces[broken]) == steps, str(verdict)


def test_each_rule_of_a_question_is_known_to_be_needed():
    left_out = {rule for changes, *_ in QUESTIONS_FAIL.values() for rule in changes}
    assert left_out - OF_SCENARIO == {*questions.QuestionRules._fields}
