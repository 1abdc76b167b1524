"""Moments with zones: all that is known of the zone is written, so that what differs looks different."""

from __future__ import annotations

import datetime
import json
import pickle
import zoneinfo

import pytest

from neo.codec import decode, state_json

MOMENT = datetime.datetime(2026, 10, 25, 2, 30)
ISO = MOMENT.isoformat()


def json_of(pickled: bytes) -> object:
    protocol = pickled[:2] if pickled[:1] == b"\x80" else b""
    text = state_json(decode(protocol + b"capp\nDoc\n." + pickled))
    assert text is not None
    return json.loads(text)


def moment_in(zone: bytes) -> object:
    """A datetime whose zone is what these opcodes make, as protocol 2 has it."""
    packed = b"c_codecs\nencode\n(X\x0b\0\0\0\x07\xc3\xaa\n\x19\x02\x1e\0\0\0\0X\x06\0\0\0latin1tR"
    return json_of(b"\x80\x02cdatetime\ndatetime\n" + packed + zone + b"\x86R.")


@pytest.mark.parametrize(
    ("opcodes", "zone"),
    [
        (b"cpytz\n_UTC\n)R", "pytz._UTC"),
        (b"cpytz\n_p\n(X\x05\0\0\0ParistR", "Paris"),
        (
            b"cpytz\n_p\n(X\x05\0\0\0ParisM\x10\x0eK\0X\x03\0\0\0CETtR",
            {"$class": "pytz._p", "args": ["Paris", 3600, 0, "CET"]},
        ),
        (b"cpytz\n_FixedOffset\n(M,\x01tR", {"$class": "pytz._FixedOffset", "args": [300]}),
        (b"cpytz\n_FixedOffset\n(M-\x01tR", {"$class": "pytz._FixedOffset", "args": [301]}),
        (
            b"cdateutil.tz\ntzoffset\n)\x81}X\x07\0\0\0_offsetM\x10\x0esb",
            {"$class": "dateutil.tz.tzoffset", "state": {"_offset": 3600}},
        ),
        (
            b"ccopy_reg\n_reconstructor\n(cdateutil.tz\ntzutc\ncdatetime\ntzinfo\n"
            b"cdatetime\ntzinfo\n)RtR",
            {"$class": "dateutil.tz.tzutc", "args": [{"$class": "datetime.tzinfo"}]},
        ),
        (b"capp\nZone\n(X\x04\0\0\0hometR", {"$class": "app.Zone", "args": ["home"]}),
        (b"capp\nZone\n", "app.Zone"),
    ],
)
def test_a_zone_of_a_library_or_an_application(opcodes: bytes, zone: object) -> None:
    assert moment_in(opcodes) == {"$datetime": ISO, "zone": zone}


@pytest.mark.parametrize("protocol", range(6))
def test_zones_of_python(protocol: int) -> None:
    def written(zone: datetime.tzinfo) -> object:
        return json_of(pickle.dumps(MOMENT.replace(tzinfo=zone), protocol))

    assert written(zoneinfo.ZoneInfo("Europe/Paris")) == {"$datetime": ISO, "zone": "Europe/Paris"}
    for minutes, text in (300, "+05:00"), (-301, "-05:01"):
        zone = datetime.timezone(datetime.timedelta(minutes=minutes))
        assert written(zone) == {"$datetime": ISO + text}


@pytest.mark.parametrize("protocol", [4, 5])
def test_the_second_of_two_equal_times_is_told(protocol: int) -> None:
    """Earlier protocols do not have it."""
    paris = zoneinfo.ZoneInfo("Europe/Paris")
    second = MOMENT.replace(fold=1)
    assert json_of(pickle.dumps(second, protocol)) == {"$datetime": ISO, "fold": 1}
    assert json_of(pickle.dumps(second.replace(tzinfo=paris), protocol)) == {
        "$datetime": ISO,
        "fold": 1,
        "zone": "Europe/Paris",
    }
    assert json_of(pickle.dumps(second.time(), protocol)) == {"$time": "02:30:00", "fold": 1}
