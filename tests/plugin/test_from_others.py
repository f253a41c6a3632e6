"""What docs/PLUGINS_FROM.md says is here is here, and each hook of others has its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zonemta_py.plugin import fields_page
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.loading import BUNDLED
from zonemta_py.plugin.spec import HOOKS

PAGE = (Path(__file__).parents[2] / "docs" / "PLUGINS_FROM.md").read_text()
ROWS = [[cell.strip() for cell in row.strip("| ").split(" | ", 1)] for row in re.findall(r"^\| `.*$", PAGE, re.M)]
ARGUMENTS = {
    "envelope": "Envelope", "address": "Address", "session": "Session", "routing": "Routing", "delivery": "Delivery",
    "options": "ConnectOptions", "retry": "NextTry", "deferral": "Deferral", "refusal": "Refusal", "info": "Info",
    "stored": "StoredMessage", "server": "Server", "node": "Node", "headers": "Headers", "process": "Process",
    "data": "Sni",
}  # fmt: skip
KINDS = {kind.__name__: kind for kind in fields_page.KINDS}
HARAKA = """
init_master init_child init_http init_wss connect_init lookup_rdns connect capabilities unrecognized_command
disconnect helo ehlo quit vrfy noop rset mail rcpt rcpt_ok data data_post max_data_exceeded queue queue_outbound
queue_ok reset_transaction deny get_mx deferred bounce delivered send_email pre_send_trans_email log
"""
ZONEMTA = """
api:mail log:entry message:headers message:queue message:store queue:bounce queue:delayed queue:release queue:route
sender:connect sender:connected sender:connecting sender:connection sender:delivered sender:fetch sender:headers
sender:responseError sender:tlserror smtp:auth smtp:connect smtp:data smtp:init smtp:mail_from smtp:rcpt_to smtp:sni
"""
KUMO = """
get_acl_definition get_egress_path_config get_egress_pool get_egress_source get_listener_domain get_queue_config
http_message_generated http_server_validate_auth_basic init pre_init proxy_init proxy_server_auth_rfc1929
rebind_message requeue_message should_enqueue_log_record smtp_client_rewrite_delivery_status smtp_server_auth_plain
smtp_server_connection_accepted smtp_server_data smtp_server_ehlo smtp_server_get_dynamic_parameters
smtp_server_mail_from smtp_server_message_deferred_inject smtp_server_message_received smtp_server_rcpt_to
smtp_server_rewrite_response smtp_server_split_transaction spool_message_enumerated throttle_insert_ready_queue
tsa_init tsa_load_shaping_data xfer_message_received
"""


def words(cell: int) -> set[str]:
    return {word for row in ROWS for word in re.findall(r"`([^`]+)`", row[cell])}


def test_hooks_that_are_named_exist() -> None:
    named = {word for word in words(1) if re.fullmatch(r"(smtp|message|queue|sender|api|log)_\w+", word)}
    assert named
    assert named - HOOKS.keys() == set()


@pytest.mark.parametrize("word", sorted(word for word in words(1) if re.fullmatch(r"\w+\.[\w.\[\]]+", word)))
def test_fields_that_are_named_exist(word: str) -> None:
    """Of arguments, and of the api."""
    head, _, name = re.sub(r"\[\d+\]", "", word).partition(".")
    if head == "api":
        made = PluginApi("test")
        for part in name.split("."):
            made = getattr(made, part)
    elif head in ARGUMENTS:
        kind = KINDS[ARGUMENTS[head]]
        known = {one[0] for one in fields_page.members(kind)} | {one for one in dir(kind) if not one.startswith("_")}
        assert name.partition(".")[0] in known
    else:
        assert head in ("plugins", "functools", "asyncio", "email", "config")


def test_bundled_plugins_that_are_named_exist() -> None:
    named = {word for row in ROWS if "bundled plugin" in row[1] for word in re.findall(r"`(\w+)`", row[1])}
    assert named
    assert [name for name in named if not (BUNDLED / f"{name}.py").is_file()] == []


def test_each_hook_of_the_others_has_a_line() -> None:
    there = " ".join(row[0] for row in ROWS)
    assert [name for name in ZONEMTA.split() if f"'{name}'" not in there] == []
    assert [name for name in HARAKA.split() if f"`hook_{name}`" not in there] == []
    assert [name for name in KUMO.split() if f"`{name}`" not in there] == []
