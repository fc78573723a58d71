"""The checks of the protocol's statements, and the possible failures."""

from __future__ import annotations

from dataclasses import dataclass, replace

RETRY, BURY, COMPENSATE, RETRY_UNDO = "retry", "bury", "compensate", "retry, then compensate"


@dataclass(frozen=True)
class Rules:
    """The checks of each statement. All true is the protocol; tests remove them one by one."""

    fresh_ids: bool = True
    scans: bool = True
    renotifies: bool = True
    turn_begins_with_beat: bool = True
    attempt_counted_in_claim: bool = True
    finish_is_fenced: bool = True
    fence_has_attempt: bool = True
    fence_has_worker: bool = True
    row_count_is_looked_at: bool = True
    reconciles: bool = True
    remembers_ends: bool = True
    repeats_no_atomic_end: bool = True
    lose_checks_beat: bool = True
    final_claims_wait: bool = True
    claims_read_after_beat: bool = True
    new_id_when_lost: bool = True
    lost_before_it_lets_go: bool = True
    a_hang_is_a_failure: bool = True
    a_last_hang_is_undone: bool = True
    recovers_in_two_steps: bool = True
    recover_is_fenced: bool = True
    crashes_are_counted: bool = True
    notice_in_the_transaction: bool = True
    compensated_is_final: bool = True
    revive_checks_status: bool = True
    history_decides: bool = True

    def without(self, *names: str) -> Rules:
        return replace(self, **dict.fromkeys(names, False))


@dataclass(frozen=True)
class Scenario:
    """The kind of task, and the number of failures that may happen."""

    policy: str = RETRY
    atomic: bool = False
    raises: bool = False
    hangs: bool = False
    poison: bool = False
    ahead: bool = False
    hints: bool = False
    tasks: int = 1
    max_attempts: int = 2
    max_crashes: int = 2
    cleaners: int = 1
    crashes: int = 0
    freezes: int = 0
    lost_answers: int = 0
    releases: int = 0
    stops: int = 0
    revives: int = 0
    cuts: int = 0
    failovers: int = 0
    copies: int = 0

    @property
    def retries(self) -> bool:
        return self.policy in (RETRY, RETRY_UNDO)

    @property
    def compensates(self) -> bool:
        return self.policy in (COMPENSATE, RETRY_UNDO)

    @property
    def most_runs(self) -> int:
        """One, and one more for each thing that goes wrong."""
        if self.poison:
            return self.max_crashes
        faults = self.crashes + self.freezes + self.revives + self.stops
        if (
            self.retries
        ):  # what may not run again runs once, whatever link is cut and whatever commit is lost
            faults += self.cuts + self.failovers
        may_fail = self.raises or self.hangs
        return 1 + faults + (self.max_attempts - 1) * may_fail


@dataclass(frozen=True)
class Case:
    """A scenario, with the rules that are followed in it."""

    rules: Rules
    scenario: Scenario
