"""What vulture takes for dead and is alive, each with who uses it; tests/test_dead_code.py finds nothing else.

Whole kinds are passed over by pyproject.toml: pydantic's validators, typer's commands and the hooks' specification.
"""
# ruff: noqa: B018, F821

_ = object()

# asyncio calls its protocols
_.pause_writing
_.resume_writing

# uvicorn and its h11 protocol, whose ways at a signal and at nonsense are ours
_.capture_signals
_.send_400_response
_.keep_alive
_.should_exit

# starlette's convertors of paths
_.regex

# expat calls its parser's handlers
_.buffer_text
_.StartDoctypeDeclHandler
_.EntityDeclHandler
_.StartElementHandler
_.EndElementHandler
_.CharacterDataHandler

# html.parser.HTMLParser
_.handle_startendtag
_.handle_endtag
_.handle_data
_.handle_comment

# jinja2's environment and sandbox
_.context_class
_.frac_prec  # of Babel's patterns
_.intercepted_binops
_._tokenize
_.is_safe_attribute

# pyspark.sql.datasource
_.streamReader
_.pushFilters
_.initialOffset
_.getDefaultReadLimit
_.prepareForTriggerAvailableNow
_.latestOffset

# aiosmtplib calls it by its name (delivery/smtp/session.py), and keeps what EHLO said there
_.auth_login
_.last_ehlo_response

# smtplib reads it for each command (cli/send/commands.py)
_.command_encoding

# inspect.signature and typer read a command's parameters there
_.__signature__
_.__annotations__

# hooks of the bundled plugins, found by their names
_.api_mail
_.message_analyze
_.message_headers
_.message_queue
_.message_rewrite
_.message_store
_.queue_route
_.sender_headers
_.smtp_auth
_.smtp_data

# answers to questions, which commands and programs read by key
_.seen_s

# page.html.j2 shows them
_.mood
_.alt
_.caption
_.numeric

# columns that Spark reads from a named tuple, and what names the columns of a frame to those who read the code
_.bad_windows
_.confidence
BLOCKS

# the lake's rows can be added up: for notebooks, as `exact`, with which the sketches are measured
_.rolled

# sendmail's option -F, which changes nothing
_.full_name

# what was set aside, for tests to look at

# members of the HTTP interface's documents, for its description
_.report_ms
_.undo_until_ms
_.anew_ms
_.suspended

# where pyspf asks DNS
_.DNSLookup

# textual's App
_.ENABLE_COMMAND_PALETTE
_.CSS
_.BINDINGS
_.on_mount
_.on_key
_.on_resize
_.action_sort
_.action_order

# Templates of the dashboard read them.
_.undo_with
_.undo_label

# FastAPI calls it
_.end_reroute

# typer asks how an argument is shown
_.get_usage_pieces
_._custom_shell_complete


# Figures of a campaign, counted by their names (`queue.feedback.consequences.FIGURES`).
_.auto_replies
_.unsubscribes

# What drives grants of limits, in the processes of the authority and of each queue

# nats-py's client reads by its parser, which is ours
_._ps

# tests of plugins (plugin/testing)
_.logged
_.start_mta

# answers, for programs (queue/questions)
_.ours_passed
_.dkim_failed
_.spf_failed
_.reputation
_.complaint_rate
_.tls_failures
_.uses_link
_.uses_return_path
