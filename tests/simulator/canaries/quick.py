"""The planted bugs that the suite hunts: the four of each oracle that are found fastest.

``python -m tests.simulator --canaries`` prints the seconds of all; ``make soak`` hunts all.
"""

from __future__ import annotations

QUICK: tuple[str, ...] = tuple(
    """
    unlock-before-locks forgotten-invalidation tid-in-another-partition nobody-asked-for-tids
    final-tid-forgotten older-table-accepted tids-of-others unlocked-too-early released-at-vote
    lock-kept-after-abort locks-kept-after-stop deadlock-not-seen data-not-released
    pack-takes-the-current undo-overwrites source-does-not-wait objects-not-replicated
    last-transaction-left-out first-chunk-only changed-before-checked order-not-checked
    hint-believed oid-kept unresolved-kept failure-survived drained-in-vain
    backup-forgets-metadata backup-left-too-late backup-not-durable backup-without-invalidations
    objects-not-compared truncated-on-one promise-not-synced decided-before-synced
    lease-outlives-suspicion no-wait-before-serving table-not-logged lease-of-a-minority
    log-of-a-minority comparison-ignored mark-ignored generation-stays scrub-of-one-partition
    lock-before-the-vote-is-durable vote-without-the-conflict
    lock-waited-for-for-ever waiting-store-left-behind interrupted-finish-forgotten
    prepared-dropped-with-its-client prepared-dropped-at-start cell-without-prepared-rows
    rollback-answered-before-the-disk backup-asked-at-once sync-lease-too-early
    prepared-not-copied-at-join waits-again-for-the-backup content-row-before-sync
    content-never-swept content-not-mended operation-undone-forward operation-unlocked-at-failure
    operation-barrier-of-the-first operation-cells-left partitions-undone-at-once
    partitions-read-by-number partitions-rows-left
    partitions-outcome-of-the-ttid archive-of-several-moments archive-not-synced
    archive-left-behind restore-of-the-last-copy restore-not-emptied
    kept-last-one-skipped kept-restored-without-invalidations
    local-delivery-at-once local-newest-first local-lists-shared local-close-overtakes
    conflict-with-an-earlier-revision told-and-passed-over
    """.split()
)
