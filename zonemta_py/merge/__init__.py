"""Campaign templates: one source, thousands of messages.

    load.load(path) → TemplateSource            the only file here that reads files
    compile.prepare(source) → TemplateSource    MJML compiled, CSS inlined, text made; faults found (needs [campaign])
    TemplateSource.pack() / .unpack()           as bytes, to be stored once
    compile.compile(source) → Compiled          needs Jinja2 only
    Compiled.render(fields, recipient, campaign, date) → bytes; .pieces(…) for streaming

Promise: the same template, fields, campaign, recipient and date give the same bytes. No field, whatever its text, makes
another header field or another MIME part, and no template runs long or fills memory.
"""
