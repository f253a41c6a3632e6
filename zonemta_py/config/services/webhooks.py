"""Whose webhooks are taken by their signature: what proves that a provider has posted them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from zonemta_py.config.section import NAME, Section
from zonemta_py.config.values import FilePath

NAME_OF_TENANT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_NEEDS = {"mailgun": "secrets", "sendgrid": "public_keys", "ses": "topics"}


class Webhook(Section):
    """A provider that posts to /v1/feedback/PROVIDER and signs what it posts (docs/FEEDBACK.md). From then on its
    signature is needed there, and no key; of several for one provider any may have signed. Postmark does not sign: give
    it a key."""

    name: str = Field(pattern=NAME)
    """Name in logs and refusals."""
    provider: Literal["ses", "sendgrid", "mailgun"]
    """Whose form it is."""
    secrets: list[Annotated[str, Field(min_length=16, max_length=200)]] = []
    """Of mailgun: its HTTP webhook signing key; several while it changes."""
    public_keys: list[str] = []
    """Of sendgrid: the verification key of the signed event webhook, as it is shown there; several while it changes."""
    topics: list[str] = []
    """Of ses: the topics of Amazon SNS that may post here (arn:aws:sns:eu-west-1:123456789012:bounces). Only of these
    is a certificate fetched, and a subscription confirmed."""
    certificates: list[FilePath] = []
    """Of ses: PEM files with SNS's certificates. Then nothing is fetched, and an operator confirms subscriptions by the
    address in the log."""
    tenants: list[Annotated[str, Field(pattern=NAME_OF_TENANT)]] = []
    """Its scope: only about mail of these tenants, and for their lists; empty: about all. The rest is left out."""
    age_s: int = Field(86_400, ge=60, le=7 * 86_400)
    """How long ago it may have been signed. Providers try again for hours; what comes twice counts once."""

    @model_validator(mode="before")
    @classmethod
    def _check_provider(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("provider") == "postmark":
            raise ValueError(
                "Postmark does not sign its webhooks; remove this table, and put a key with the right feedback into the"
                " URL that Postmark posts to (https://any:KEY@host/v1/feedback/postmark)"
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> Webhook:
        for provider, key in _NEEDS.items():
            if bool(getattr(self, key)) != (provider == self.provider):
                remedy = f"add {key}" if provider == self.provider else f"remove {key}, which is of {provider}"
                raise ValueError(f"the webhook {self.name!r} is of {self.provider}; {remedy}")
        if self.certificates and self.provider != "ses":
            raise ValueError(f"the webhook {self.name!r} is of {self.provider}; remove certificates, which is of ses")
        if self.public_keys or self.topics:
            self._check_proofs()
        return self

    def _check_proofs(self) -> None:
        from zonemta_py.mail.feedback.providers import signatures  # a start needs it only where one is configured

        for key in self.public_keys:
            try:
                signatures.sendgrid_key(key)
            except ValueError as error:
                raise ValueError(f"public_keys: {error}") from None
        for topic in self.topics:
            if not signatures.topic_host(topic):
                raise ValueError(f"topics: {topic!r} is not an ARN such as arn:aws:sns:eu-west-1:123456789012:bounces")
