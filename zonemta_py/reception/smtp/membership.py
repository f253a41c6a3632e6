"""Lets a client in: plugins are asked, and the session counts for its account, where that has a quota of sessions: from
the connection on, and anew after a login. And takes away its right, where another configuration does not give it."""

from __future__ import annotations

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.arguments import Session
from zonemta_py.plugin.verdicts import Verdict
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.smtp.revision import Revision


class Membership:
    """The part of a connection that counts it."""

    site: ListenerSettings
    session: Session
    may_relay: bool
    revoked: Reply | None
    _password: str
    """Digest of the one it has logged in with, unless a plugin has let it in."""
    _lost: bool
    _counted = False

    def hang_up(self, reply: Reply) -> None:
        raise NotImplementedError

    async def welcome(self) -> bytes | None:
        """The banner, where something has to be waited for."""
        try:
            if (refusal := await self.enter()) is not None:
                self.hang_up(refusal)
                return None
            if self.site.host.listens("smtp_connect"):
                await self.site.host.call("smtp_connect", session=self.session)
        except Verdict as verdict:
            self.hang_up(verdict.reply)
            return None
        return self.site.banner

    @property
    def counts(self) -> bool:
        """Whether its account has such a quota."""
        account = self.session.account
        return bool(account) and self.site.accounts.by_name[account].sessions > 0

    async def enter(self) -> Reply | None:
        """Counts it in, and out where it was before; why it must end."""
        if not self.counts:
            self.leave_account()
            return None
        self._counted = True
        try:
            await self.site.submission.enter(self.session.id, self.session.account)
        except QueueRefusal as refused:
            return Reply(421, refused.reply.enhanced, refused.reply.text)
        finally:
            if self._lost:  # while it waited
                self._counted = True
                self.leave_account()
        return None

    def revise(self, revision: Revision) -> None:
        """It goes on only with what it is given there."""
        session = self.session
        if not self.may_relay or self.revoked is not None:
            return
        if session.user:
            self.revoked = revision.user(session, self._password)
        else:
            self.revoked = revision.network(session.listener, session.client)

    def leave_account(self) -> None:
        """Counts it out; harmless twice."""
        if self._counted:
            self._counted = False
            self.site.submission.leave(self.session.id)
