"""Passwords."""

from __future__ import annotations

from zonemta_py.reception.login import Login

PASSWORD = "correct horse"


async def test_only_the_right_password_of_a_known_user_is_accepted(users: dict[str, str]) -> None:
    """Again and again, whatever has been accepted before."""
    login = Login(users)
    for _ in range(2):
        assert await login.check("anna", PASSWORD)
        assert not await login.check("anna", "wrong")
        assert not await login.check("anna", "")
        assert not await login.check("otto", PASSWORD)
        assert not await login.check("", "")
        assert not await login.check("anna\0", PASSWORD)


async def test_successes_are_remembered_and_failures_are_not(users: dict[str, str]) -> None:
    """The second login of a user costs no hashing; unknown users are hashed against somebody's, every time."""
    login = Login(users)
    hashed: list[str] = []
    verify = login._verify

    def count(hash_: str, password: str) -> bool:
        hashed.append(hash_)
        return verify(hash_, password)

    login._verify = count  # type: ignore[method-assign]
    for _ in range(3):
        assert await login.check("anna", PASSWORD)
    assert len(hashed) == 1
    for _ in range(2):
        assert not await login.check("otto", PASSWORD)
    assert hashed == [users["anna"]] * 3


async def test_without_users_nobody_gets_in() -> None:
    """And nothing fails."""
    assert not await Login({}).check("anna", PASSWORD)
