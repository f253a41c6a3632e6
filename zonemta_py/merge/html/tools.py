"""The libraries of the extra [campaign], imported when needed: MJML's compiler and the one that inlines CSS."""

from __future__ import annotations

from zonemta_py.merge.problems import ToolMissing


def mjml(markup: str) -> str:
    """MJML as HTML. Raises ValueError with the compiler's words, ToolMissing."""
    try:
        from mjml import mjml2html
    except ImportError:
        raise _missing("MJML") from None
    # No fonts from elsewhere: a reader's program must not ask a third party.
    return str(mjml2html(markup, fonts={}))


def inline_css(markup: str) -> str:
    """Style sheets as style attributes; what cannot be one (@media, :hover) stays. Raises ToolMissing."""
    try:
        from css_inline import CSSInliner
    except ImportError:
        raise _missing("CSS") from None
    inliner = CSSInliner(
        keep_at_rules=True, keep_style_tags=True, remove_inlined_selectors=True, load_remote_stylesheets=False
    )
    return str(inliner.inline(markup))


def _missing(what: str) -> ToolMissing:
    return ToolMissing(f"a template with {what} needs the extra campaign; run: pip install 'zonemta-py[campaign]'")
