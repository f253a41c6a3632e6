"""Campaign templates: one source, thousands of messages.

    load.load(path) → Source      the only file here that reads files
    compile.prepare(source) → Source    MJML compiled, CSS inlined, text made; what is wrong is found (needs [campaign])
    Source.pack() / Source.unpack()     as bytes, to be stored once
    compile.compile(source) → Compiled  needs Jinja2 only
    Compiled.render(fields, recipient, campaign, date) → bytes; .pieces(…) for whoever streams

Promise: the same template, fields, campaign, recipient and date give the same bytes. No field, whatever its text, makes
another header field or another MIME part, and no template runs long or fills memory.
"""
