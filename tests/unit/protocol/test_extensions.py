"""The table of features in the specification, against the messages that exist."""

from __future__ import annotations

import re
from pathlib import Path

from neo.protocol import packets
from neo.protocol.packets import BY_CODE

PAGE = Path(__file__).parents[3] / "docs" / "specification" / "21-extensions.md"
FIRST_CODE = 0x4000


def table() -> dict[str, list[str]]:
    """Return the messages of each feature, as rule 21.5 lists them."""
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {feature: messages.split(", ") for feature, messages in rows}


def test_every_feature_is_in_the_table() -> None:
    """Specification 21.5."""
    features = {value for name, value in vars(packets).items() if name.startswith("FEATURE_")}
    assert features == table().keys()


def test_every_message_of_ours_has_a_feature() -> None:
    """Specification 21.5, 21.7."""
    listed = [message for messages in table().values() for message in messages]
    assert len(listed) == len(set(listed))
    ours = {cls.__name__ for code, cls in BY_CODE.items() if code & FIRST_CODE}
    requests = {name for name in ours if not name.startswith("Answer")}
    assert requests - {"NotifyFeatures", "AskDownNodes"} == set(listed)


def test_messages_of_features_have_codes_of_their_own() -> None:
    """Specification 21.1, 21.5."""
    codes = {cls.__name__: code for code, cls in BY_CODE.items()}
    for feature, messages in table().items():
        for message in messages:
            assert codes[message] & FIRST_CODE, f"{message} of {feature}"
