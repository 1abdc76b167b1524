"""Opening a storage with ZConfig and zodburi."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest
import ZODB
import zodburi
from persistent.mapping import PersistentMapping
from ZODB.config import databaseFromString, storageFromString

from neo.client import NEOStorage, uri
from neo.client.errors import ConfigurationError
from tests.zodb.conftest import GetFleet
from tests.zodb.fleet import NAME, Fleet


@pytest.fixture
def cluster(fleets: GetFleet) -> Fleet:
    fleet = fleets(1, "sqlite", 0)
    fleet.start()
    return fleet


def section(*lines: str) -> str:
    return "%import neo.client\n<NEOStorage>\n" + "\n".join(lines) + "\n</NEOStorage>\n"


def test_zconfig_opens_a_storage_with_all_its_options(cluster: Fleet, tmp_path: Path) -> None:
    masters = tmp_path / "masters"
    storage = storageFromString(
        section(
            f"master_nodes {cluster.masters}",
            f"name {NAME}",
            "compress 3",
            "read-only true",
            "cache-size 5MB",
            f"cache-dir {tmp_path / 'caches'}",
            "wait-timeout 7.5",
            "durable-vote on",
            "server-sync off",
            f"dynamic_master_list {masters}",
            f"logfile {tmp_path / 'client.log'}",
        )
    )
    try:
        assert isinstance(storage, NEOStorage)
        assert (storage.getName(), storage.isReadOnly()) == (NAME, True)
        assert storage._session.settings.compress == 3
        assert storage._invalidations.cache.capacity == 5 * 1024 * 1024
        assert storage._session.settings.wait_timeout == 7.5
        assert storage._session.settings.durable_vote and not storage._session.settings.server_sync
        assert storage._session.settings.cache_dir == str(tmp_path / "caches")
        logging.getLogger("neo.client").error("for the file")
        assert "for the file" in (tmp_path / "client.log").read_text()
    finally:
        storage.close()
        for handler in logging.getLogger("neo.client").handlers[:]:
            logging.getLogger("neo.client").removeHandler(handler)
            handler.close()


def test_zconfig_takes_hyphens_and_underscores(cluster: Fleet) -> None:
    storage = storageFromString(
        section(f"master-nodes {cluster.masters}", f"name {NAME}", "read_only 1", "compress off")
    )
    try:
        assert (storage.isReadOnly(), storage._session.settings.compress) == (True, 0)
    finally:
        storage.close()


def test_a_database_section_works_as_in_zope_conf(cluster: Fleet) -> None:
    db = databaseFromString(
        "%import neo.client\n<zodb main>\n<NEOStorage>\n"
        f"master_nodes {cluster.masters}\nname {NAME}\n</NEOStorage>\n</zodb>"
    )
    with db.transaction() as connection:
        connection.root.answer = 42
    with db.transaction() as connection:
        assert connection.root.answer == 42
    db.close()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["name x"], "master_nodes is missing"),
        (["master_nodes 127.0.0.1:1"], "name is missing"),
        (["master_nodes 127.0.0.1:1", "name x", "compress loud"], "compress.*'loud'"),
        (["master_nodes 127.0.0.1:1", "master-nodes 127.0.0.1:1", "name x"], "given twice"),
    ],
)
def test_wrong_sections_are_explained(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        storageFromString(section(*lines))


def test_a_uri_opens_a_storage_and_hands_on_the_options_of_the_database(
    cluster: Fleet, tmp_path: Path
) -> None:
    factory, dbkw = zodburi.resolve_uri(
        f"neo://{NAME}@{cluster.masters}?compress=0&cache_size=1MB&read_only=1&wait-timeout=5"
        f"&durable_vote=1&server-sync=0&cache-dir={tmp_path}"
        "&connection_pool_size=3&connection_cache_size=500&database_name=n"
    )
    assert dbkw == {"pool_size": 3, "cache_size": 500, "database_name": "n"}
    storage = factory()
    try:
        assert (storage.getName(), storage.isReadOnly()) == (NAME, True)
        assert storage._session.settings.compress == 0
        assert storage._invalidations.cache.capacity == 1024 * 1024
        assert storage._session.settings.wait_timeout == 5
        assert storage._session.settings.durable_vote and not storage._session.settings.server_sync
        assert storage._session.settings.cache_dir == str(tmp_path)
    finally:
        storage.close()


DEMOS = ("neo://{}?demostorage=true&connection_pool_size=3", "demo:(neo://{})/(memory://x)")


@pytest.mark.parametrize("form", DEMOS)
def test_changes_of_a_demo_storage_stay_in_its_process(cluster: Fleet, form: str) -> None:
    where = f"{NAME}@{cluster.masters}"
    factory, dbkw = zodburi.resolve_uri(f"neo://{where}?demostorage=false")
    with closing(ZODB.DB(factory(), **dbkw)) as db, db.transaction() as connection:
        connection.root()["kept"] = PersistentMapping(answer=42)
    factory, dbkw = zodburi.resolve_uri(form.format(where))
    with closing(ZODB.DB(factory(), **dbkw)) as demo:
        with demo.transaction() as connection:
            root = connection.root()
            root["kept"]["answer"] += 1
            root["new"] = PersistentMapping()
        with demo.transaction() as connection:
            assert connection.root()["kept"]["answer"] == 43
            assert sorted(connection.root()) == ["kept", "new"]
    with closing(ZODB.DB(cluster.storage())) as db, db.transaction() as connection:
        assert dict(connection.root()["kept"]) == {"answer": 42}
        assert sorted(connection.root()) == ["kept"]


def test_several_masters_and_ipv6_in_a_uri() -> None:
    options, _ = uri._parse("neo://a%20b@127.0.0.1:1,[::1]:2")
    assert options == {"master_nodes": "127.0.0.1:1,[::1]:2", "name": "a b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neo://127.0.0.1:1", "is not neo://name@host:port"),
        ("neo://name@", "is not neo://name@host:port"),
        ("neo://n@127.0.0.1:1?compress=loud", "compress"),
        ("neo://n@127.0.0.1:1?wait_timeout=soon", "wait_timeout"),
        ("neo://n@127.0.0.1:1?demostorage=maybe", "demostorage.*'maybe' is not true or false"),
    ],
)
def test_wrong_uris_are_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        uri.resolve(text)


def test_a_secure_uri_needs_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEO_CA", "NEO_CERT", "NEO_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="'ca' or variable NEO_CA"):
        uri.resolve_tls("neos://n@127.0.0.1:1")
    monkeypatch.setenv("NEO_CA", "/ca")
    monkeypatch.setenv("NEO_KEY", "/key")
    factory, _ = uri.resolve_tls("neos://n@127.0.0.1:1?cert=/cert")
    with pytest.raises(ConfigurationError, match="/ca"):
        factory()
