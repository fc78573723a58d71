"""The SQL of stack requests."""

from __future__ import annotations

from django_txtasks.features.results.cancelling import ALL_ASKED_TO_STOP, ASKED_TO_STOP

# Read in the statement of the look for cancels, so that no worker sends a statement more.
_QUESTIONS = """
    UNION ALL
    SELECT task_id, attempt, 1 FROM txtasks_stackrequest WHERE worker = %(worker)s AND answered_at IS NULL
"""
STOPS_AND_QUESTIONS = ASKED_TO_STOP + _QUESTIONS
STOPS_OF_LOOP = ALL_ASKED_TO_STOP + _QUESTIONS
# A person may ask again, for a later attempt, after the worker has read the first question.
_OPEN = "task_id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND answered_at IS NULL"
# A transaction of a web request may have locked the row; the worker's loop must not wait for it.
LOCK_QUESTION = f"SELECT 1 FROM txtasks_stackrequest WHERE {_OPEN} {{skip_locked}}"
ANSWER = f"UPDATE txtasks_stackrequest SET answered_at = {{now}}, text = %(text)s WHERE {_OPEN}"
FORGET = "DELETE FROM txtasks_stackrequest WHERE asked_at < {ago}"
