"""The planted bugs that the suite hunts: the four of each oracle that are found fastest.

``python -m tests.simulator --canaries`` prints the seconds of all; ``make soak`` hunts all.
"""

from __future__ import annotations

QUICK: tuple[str, ...] = tuple(
    """
    unlock-before-locks forgotten-invalidation tid-in-another-partition tid-not-restored
    nobody-asked-for-tids tids-of-others unlocked-too-early released-at-vote lock-kept-after-
    abort locks-kept-after-stop conflicts-compared-wrongly deadlock-not-seen unfinished-kept
    source-does-not-wait first-chunk-only given-up-half-compared changed-before-checked order-
    not-checked hint-believed oid-kept unresolved-kept failure-survived collected-unseen
    address-is-enough drained-in-vain backup-keeps-deleted backup-forgets-metadata backup-
    without-invalidations objects-not-compared truncated-on-one closed-link-used promise-not-
    synced decided-before-synced lease-outlives-suspicion lease-from-the-answer table-not-
    logged lease-of-a-minority log-of-a-minority votes-before-it-learned comparison-ignored
    lost-mark-is-believed generation-stays mark-before-sync scrub-of-one-partition lock-
    waited-for-for-ever waiting-store-left-behind interrupted-finish-forgotten prepared-
    dropped-with-its-client prepared-dropped-at-start prepared-checks-not-taken-again
    rollback-answered-before-the-disk backup-votes-dropped-at-start sync-lease-ignored synced-
    claims-too-much prepared-not-copied-at-join content-removed-before-the-row content-never-
    swept operation-undone-forward operation-barrier-of-the-first operation-undone-without-a-
    word operation-cells-left partitions-outcome-of-the-ttid partitions-undone-at-once
    partitions-read-by-number
    """.split()
)
