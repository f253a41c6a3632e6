"""The rules as they are shipped, read once for all tests of a process, since each reading takes a sixth of a second."""

from zonemta_py.config.section import shipped
from zonemta_py.mail.rules.rules import Rules

SHIPPED = Rules.load([shipped("rules.toml")])
