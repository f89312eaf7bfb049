-- Tables of a store. Every column has a comment: meaning, unit, origin. `agenttrace schema` prints them.
-- No primary keys: on spans they cost 1.8 times the time and the size; the compactor stores each span once.
-- Attributes take half of the room, and two thirds of the time to read, that they take as DuckDB would compress them.

CREATE TABLE agenttrace_meta (key VARCHAR NOT NULL, value VARCHAR NOT NULL);

CREATE TABLE segments (segment VARCHAR NOT NULL, compacted_at TIMESTAMPTZ NOT NULL);

CREATE TABLE dirty_traces (trace_id VARCHAR NOT NULL);

CREATE TABLE settled_traces (trace_id VARCHAR NOT NULL);

CREATE TABLE spans (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_span_id VARCHAR,
    name VARCHAR NOT NULL,
    span_kind VARCHAR NOT NULL,
    start_time_unix_nano BIGINT NOT NULL,
    end_time_unix_nano BIGINT,
    status_code VARCHAR NOT NULL,
    status_message VARCHAR,
    service_name VARCHAR,
    scope_name VARCHAR,
    scope_version VARCHAR,
    operation_name VARCHAR,
    openinference_kind VARCHAR,
    agent_name VARCHAR,
    tool_name VARCHAR,
    tool_call_id VARCHAR,
    conversation_id VARCHAR,
    model VARCHAR,
    input_tokens BIGINT,
    output_tokens BIGINT,
    error_type VARCHAR,
    attributes VARCHAR NOT NULL USING COMPRESSION zstd,
    events VARCHAR NOT NULL,
    links VARCHAR NOT NULL,
    resource_attributes VARCHAR NOT NULL,
    scope_attributes VARCHAR NOT NULL,
    trace_state VARCHAR,
    flags BIGINT,
    resource_schema_url VARCHAR,
    scope_schema_url VARCHAR,
    dropped_attributes_count BIGINT NOT NULL,
    dropped_events_count BIGINT NOT NULL,
    dropped_links_count BIGINT NOT NULL,
    resource_dropped_attributes_count BIGINT NOT NULL,
    scope_dropped_attributes_count BIGINT NOT NULL,
    received_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE log_records (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    event_name VARCHAR,
    time_unix_nano BIGINT,
    observed_time_unix_nano BIGINT,
    severity_number BIGINT,
    severity_text VARCHAR,
    body VARCHAR,
    attributes VARCHAR NOT NULL,
    service_name VARCHAR,
    scope_name VARCHAR,
    scope_version VARCHAR,
    resource_attributes VARCHAR NOT NULL,
    scope_attributes VARCHAR NOT NULL,
    flags BIGINT,
    resource_schema_url VARCHAR,
    scope_schema_url VARCHAR,
    dropped_attributes_count BIGINT NOT NULL,
    resource_dropped_attributes_count BIGINT NOT NULL,
    scope_dropped_attributes_count BIGINT NOT NULL,
    received_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE steps (
    trajectory_id VARCHAR NOT NULL,
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_span_id VARCHAR,
    step_index INTEGER,
    kind VARCHAR NOT NULL,
    name VARCHAR,
    service_name VARCHAR,
    agent_name VARCHAR,
    session_id VARCHAR,
    user_id VARCHAR,
    tenant_id VARCHAR,
    task_id VARCHAR,
    trial INTEGER,
    tool_name VARCHAR,
    tool_call_id VARCHAR,
    arguments JSON,
    arguments_hash VARCHAR,
    observation JSON,
    mutability VARCHAR,
    idempotency_key VARCHAR,
    tool_ran BOOLEAN,
    effect VARCHAR,
    provider VARCHAR,
    model VARCHAR,
    input_messages JSON,
    output_messages JSON,
    thought VARCHAR,
    requested_tool_calls JSON,
    offered_tools JSON,
    finish_reason VARCHAR,
    status VARCHAR NOT NULL,
    error_type VARCHAR,
    error_message VARCHAR,
    error_source VARCHAR,
    input_tokens BIGINT,
    output_tokens BIGINT,
    cached_input_tokens BIGINT,
    cache_write_tokens BIGINT,
    reasoning_tokens BIGINT,
    usage_source VARCHAR,
    cost_usd DOUBLE,
    cost_source VARCHAR,
    start_time TIMESTAMPTZ,
    end_time TIMESTAMPTZ,
    duration_ms DOUBLE,
    time_to_first_token_ms DOUBLE,
    convention VARCHAR,
    origin VARCHAR NOT NULL,
    duplicate_of VARCHAR,
    response_id VARCHAR,
    mutability_source VARCHAR,
    turn_span_id VARCHAR,
    effect_reason VARCHAR
);

CREATE TABLE trajectories (
    trajectory_id VARCHAR NOT NULL,
    trace_id VARCHAR NOT NULL,
    session_id VARCHAR,
    user_id VARCHAR,
    tenant_id VARCHAR,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR,
    trial INTEGER,
    user_input VARCHAR,
    final_response VARCHAR,
    tools VARCHAR[] NOT NULL,
    tool_call_count INTEGER NOT NULL,
    model_call_count INTEGER NOT NULL,
    error_count INTEGER NOT NULL,
    mutation_count INTEGER NOT NULL,
    input_tokens BIGINT,
    output_tokens BIGINT,
    total_tokens BIGINT,
    cost_usd DOUBLE,
    unpriced_model_calls INTEGER NOT NULL,
    start_time TIMESTAMPTZ,
    end_time TIMESTAMPTZ,
    duration_ms DOUBLE,
    complete BOOLEAN NOT NULL,
    initial_state JSON,
    final_state JSON,
    last_arrival TIMESTAMPTZ NOT NULL,
    root_ended BOOLEAN NOT NULL,
    revision BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE findings (
    finding_id VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    state VARCHAR,
    trajectory_id VARCHAR,
    trace_id VARCHAR,
    span_id VARCHAR,
    related_span_ids VARCHAR[] NOT NULL,
    tool_name VARCHAR,
    message VARCHAR NOT NULL,
    evidence JSON NOT NULL
);

CREATE TABLE measurements (
    run_id VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    dimensions JSON NOT NULL,
    value DOUBLE,
    unit VARCHAR NOT NULL,
    n BIGINT NOT NULL,
    n_not_evaluable BIGINT NOT NULL,
    low DOUBLE,
    high DOUBLE
);

CREATE TABLE not_evaluable (
    run_id VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    trajectory_id VARCHAR,
    reason VARCHAR NOT NULL
);

CREATE TABLE outcomes (
    task_id VARCHAR,
    trial INTEGER,
    trajectory_id VARCHAR,
    source VARCHAR NOT NULL,
    passed BOOLEAN,
    score DOUBLE,
    detail VARCHAR,
    recorded_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE evaluation_runs (
    run_id VARCHAR NOT NULL,
    label VARCHAR,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    since TIMESTAMPTZ,
    until TIMESTAMPTZ,
    trajectories BIGINT NOT NULL,
    passed BOOLEAN,
    config_hash VARCHAR NOT NULL,
    evaluator_versions JSON NOT NULL,
    night DATE,
    details JSON
);

CREATE TABLE judgements (
    run_id VARCHAR NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    revision BIGINT NOT NULL,
    judged BOOLEAN NOT NULL,
    is_new BOOLEAN NOT NULL,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR
);

CREATE TABLE faults (
    run_id VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    state VARCHAR,
    quiet_nights INTEGER NOT NULL,
    last_seen DATE NOT NULL,
    evaluator VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR,
    tool_name VARCHAR,
    finding_id VARCHAR NOT NULL,
    trajectory_id VARCHAR,
    message VARCHAR NOT NULL
);

COMMENT ON TABLE agenttrace_meta IS 'Facts about this file: schema_version, created_by, steps_built_with (a hash of the settings behind the steps), totals (JSON: ended spans taken from the spool, duplicates among them, time and lag of the last compaction), set_aside_by (the release that last tried unreadable segments), id_conflicts TRACE (how many spans of a trace have the ids of another span, and are in no run), too_large TRACE (1: its long values, or all of it, are in no run).';
COMMENT ON COLUMN agenttrace_meta.key IS 'name of the fact';
COMMENT ON COLUMN agenttrace_meta.value IS 'its value as text';

COMMENT ON TABLE segments IS 'Ledger of the compactor: segments of the spool that are in this file.';
COMMENT ON COLUMN segments.segment IS 'file name of the segment';
COMMENT ON COLUMN segments.compacted_at IS 'when its rows were committed';

COMMENT ON TABLE dirty_traces IS 'Traces that received rows since their steps were last rebuilt.';
COMMENT ON COLUMN dirty_traces.trace_id IS 'trace to rebuild; may repeat';

COMMENT ON TABLE settled_traces IS 'Traces that an import brought whole: complete without waiting.';
COMMENT ON COLUMN settled_traces.trace_id IS '32 lower-case hex characters, once';

COMMENT ON TABLE spans IS 'Spans as received, one row per span, that is (trace_id, span_id) and its start time; the most complete record wins. Log records that are a coding agent''s steps are rows too.';
COMMENT ON COLUMN spans.trace_id IS '32 lower-case hex characters';
COMMENT ON COLUMN spans.span_id IS '16 lower-case hex characters, unique within its trace, unless a program gave two spans one id; then one of them is in the steps';
COMMENT ON COLUMN spans.parent_span_id IS 'NULL for a root span';
COMMENT ON COLUMN spans.name IS 'span name';
COMMENT ON COLUMN spans.span_kind IS 'internal, server, client, producer, consumer or unspecified';
COMMENT ON COLUMN spans.start_time_unix_nano IS 'nanoseconds since 1970-01-01 UTC; of a chat transcript without times, places in its order';
COMMENT ON COLUMN spans.end_time_unix_nano IS 'nanoseconds since 1970-01-01 UTC; NULL: the span has started and has not ended';
COMMENT ON COLUMN spans.status_code IS 'unset, ok or error';
COMMENT ON COLUMN spans.status_message IS 'description of the status';
COMMENT ON COLUMN spans.service_name IS 'resource attribute service.name';
COMMENT ON COLUMN spans.scope_name IS 'instrumentation scope';
COMMENT ON COLUMN spans.scope_version IS 'version of the instrumentation scope';
COMMENT ON COLUMN spans.operation_name IS 'copy of attribute gen_ai.operation.name';
COMMENT ON COLUMN spans.openinference_kind IS 'copy of attribute openinference.span.kind';
COMMENT ON COLUMN spans.agent_name IS 'copy of attribute gen_ai.agent.name';
COMMENT ON COLUMN spans.tool_name IS 'copy of attribute gen_ai.tool.name';
COMMENT ON COLUMN spans.tool_call_id IS 'copy of attribute gen_ai.tool.call.id';
COMMENT ON COLUMN spans.conversation_id IS 'copy of attribute gen_ai.conversation.id, else session.id';
COMMENT ON COLUMN spans.model IS 'copy of attribute gen_ai.response.model, else gen_ai.request.model, else llm.model_name';
COMMENT ON COLUMN spans.input_tokens IS 'copy of attribute gen_ai.usage.input_tokens, else llm.token_count.prompt';
COMMENT ON COLUMN spans.output_tokens IS 'copy of attribute gen_ai.usage.output_tokens, else llm.token_count.completion';
COMMENT ON COLUMN spans.error_type IS 'copy of attribute error.type';
COMMENT ON COLUMN spans.attributes IS 'JSON object of all span attributes';
COMMENT ON COLUMN spans.events IS 'JSON list of {time_unix_nano, name, attributes, dropped_attributes_count}';
COMMENT ON COLUMN spans.links IS 'JSON list of {trace_id, span_id, trace_state, attributes, dropped_attributes_count, flags}';
COMMENT ON COLUMN spans.resource_attributes IS 'JSON object';
COMMENT ON COLUMN spans.scope_attributes IS 'JSON object';
COMMENT ON COLUMN spans.trace_state IS 'W3C tracestate';
COMMENT ON COLUMN spans.flags IS 'W3C trace flags and OTLP span flags';
COMMENT ON COLUMN spans.resource_schema_url IS 'schema URL of the resource';
COMMENT ON COLUMN spans.scope_schema_url IS 'schema URL of the scope';
COMMENT ON COLUMN spans.dropped_attributes_count IS 'attributes the producer dropped';
COMMENT ON COLUMN spans.dropped_events_count IS 'events the producer dropped';
COMMENT ON COLUMN spans.dropped_links_count IS 'links the producer dropped';
COMMENT ON COLUMN spans.resource_dropped_attributes_count IS 'resource attributes the producer dropped';
COMMENT ON COLUMN spans.scope_dropped_attributes_count IS 'scope attributes the producer dropped';
COMMENT ON COLUMN spans.received_at IS 'when the exporter, receiver or importer took the record';

COMMENT ON TABLE log_records IS 'OTLP log records that belong to a span, as received.';
COMMENT ON COLUMN log_records.trace_id IS '32 lower-case hex characters';
COMMENT ON COLUMN log_records.span_id IS '16 lower-case hex characters';
COMMENT ON COLUMN log_records.event_name IS 'event name of the record, else attribute event.name';
COMMENT ON COLUMN log_records.time_unix_nano IS 'nanoseconds since 1970-01-01 UTC; NULL where the producer gave none';
COMMENT ON COLUMN log_records.observed_time_unix_nano IS 'nanoseconds since 1970-01-01 UTC; NULL where the producer gave none';
COMMENT ON COLUMN log_records.severity_number IS 'OTLP severity, 1 to 24; NULL where unset';
COMMENT ON COLUMN log_records.severity_text IS 'severity as text';
COMMENT ON COLUMN log_records.body IS 'body as JSON; a text body is a JSON string';
COMMENT ON COLUMN log_records.attributes IS 'JSON object';
COMMENT ON COLUMN log_records.service_name IS 'resource attribute service.name';
COMMENT ON COLUMN log_records.scope_name IS 'instrumentation scope';
COMMENT ON COLUMN log_records.scope_version IS 'version of the instrumentation scope';
COMMENT ON COLUMN log_records.resource_attributes IS 'JSON object';
COMMENT ON COLUMN log_records.scope_attributes IS 'JSON object';
COMMENT ON COLUMN log_records.flags IS 'W3C trace flags';
COMMENT ON COLUMN log_records.resource_schema_url IS 'schema URL of the resource';
COMMENT ON COLUMN log_records.scope_schema_url IS 'schema URL of the scope';
COMMENT ON COLUMN log_records.dropped_attributes_count IS 'attributes the producer dropped';
COMMENT ON COLUMN log_records.resource_dropped_attributes_count IS 'resource attributes the producer dropped';
COMMENT ON COLUMN log_records.scope_dropped_attributes_count IS 'scope attributes the producer dropped';
COMMENT ON COLUMN log_records.received_at IS 'when the receiver or importer took the record';

COMMENT ON TABLE steps IS 'One row per thing the agent did. Rows with duplicate_of are kept for the record and left out of every count.';
COMMENT ON COLUMN steps.trajectory_id IS 'trajectory that holds the step';
COMMENT ON COLUMN steps.trace_id IS 'trace of the step';
COMMENT ON COLUMN steps.span_id IS 'span of the step; for a step built from messages the span of the requesting model call, # and a number';
COMMENT ON COLUMN steps.parent_span_id IS 'parent in the trace';
COMMENT ON COLUMN steps.step_index IS 'order of tool and model steps within the trajectory, from 0; NULL for other kinds and for duplicates';
COMMENT ON COLUMN steps.kind IS 'agent, model, tool, retrieval or other';
COMMENT ON COLUMN steps.name IS 'span name';
COMMENT ON COLUMN steps.service_name IS 'resource attribute service.name';
COMMENT ON COLUMN steps.agent_name IS 'agent of the step, else of its nearest agent span';
COMMENT ON COLUMN steps.session_id IS 'session or conversation';
COMMENT ON COLUMN steps.user_id IS 'end user';
COMMENT ON COLUMN steps.tenant_id IS 'tenant';
COMMENT ON COLUMN steps.task_id IS 'task that the run attempts';
COMMENT ON COLUMN steps.trial IS 'number of the attempt';
COMMENT ON COLUMN steps.tool_name IS 'tool, for kind tool';
COMMENT ON COLUMN steps.tool_call_id IS 'id that the model gave the call';
COMMENT ON COLUMN steps.arguments IS 'arguments as a JSON object; NULL where not captured';
COMMENT ON COLUMN steps.arguments_hash IS 'keyed hash of the canonical original where arguments were redacted or cut';
COMMENT ON COLUMN steps.observation IS 'what the tool gave back; NULL where not captured';
COMMENT ON COLUMN steps.mutability IS 'mutating, idempotent, read_only or NULL where unknown';
COMMENT ON COLUMN steps.idempotency_key IS 'value of the idempotency key argument';
COMMENT ON COLUMN steps.tool_ran IS 'FALSE where the call was refused before the tool ran';
COMMENT ON COLUMN steps.effect IS 'did the world change: yes, no or unknown; tool steps only';
COMMENT ON COLUMN steps.provider IS 'model provider';
COMMENT ON COLUMN steps.model IS 'model that answered, else the one asked for';
COMMENT ON COLUMN steps.input_messages IS 'JSON list of {role, parts}';
COMMENT ON COLUMN steps.output_messages IS 'JSON list of {role, parts}';
COMMENT ON COLUMN steps.thought IS 'reasoning text of the model';
COMMENT ON COLUMN steps.requested_tool_calls IS 'JSON list of {id, name, arguments}';
COMMENT ON COLUMN steps.offered_tools IS 'JSON list of {name, description, parameters} in force at this call; NULL where not recorded';
COMMENT ON COLUMN steps.finish_reason IS 'why the model stopped; tool_call, stop, length, ...';
COMMENT ON COLUMN steps.status IS 'ok, error, timeout, cancelled or unfinished';
COMMENT ON COLUMN steps.error_type IS 'exception class or code';
COMMENT ON COLUMN steps.error_message IS 'text of the error';
COMMENT ON COLUMN steps.error_source IS 'span, or result where the result itself says that it failed';
COMMENT ON COLUMN steps.input_tokens IS 'tokens, cached ones included';
COMMENT ON COLUMN steps.output_tokens IS 'tokens, reasoning included';
COMMENT ON COLUMN steps.cached_input_tokens IS 'tokens read from the cache, part of input_tokens';
COMMENT ON COLUMN steps.cache_write_tokens IS 'tokens written to the cache, part of input_tokens';
COMMENT ON COLUMN steps.reasoning_tokens IS 'tokens, part of output_tokens';
COMMENT ON COLUMN steps.usage_source IS 'own, aggregate (a sum over the steps below) or duplicate';
COMMENT ON COLUMN steps.cost_usd IS 'US dollars; NULL where unpriced';
COMMENT ON COLUMN steps.cost_source IS 'stated by the span, computed from a price table, or NULL';
COMMENT ON COLUMN steps.start_time IS 'UTC; NULL for a step of a chat transcript without times';
COMMENT ON COLUMN steps.end_time IS 'UTC; NULL while unfinished';
COMMENT ON COLUMN steps.duration_ms IS 'milliseconds';
COMMENT ON COLUMN steps.time_to_first_token_ms IS 'milliseconds';
COMMENT ON COLUMN steps.convention IS 'mapping that read the span';
COMMENT ON COLUMN steps.origin IS 'span, log or message (seen only in the messages of a model)';
COMMENT ON COLUMN steps.duplicate_of IS 'span_id of the step that stands for this one';
COMMENT ON COLUMN steps.response_id IS 'id that the provider gave the response';
COMMENT ON COLUMN steps.mutability_source IS 'span, annotation, configuration or name';
COMMENT ON COLUMN steps.turn_span_id IS 'model step that requested this tool call';

COMMENT ON COLUMN steps.effect_reason IS 'why effect is unknown: timeout, unfinished, cancelled, connection_lost, server_error, unspecific or opaque; unknown_tool where the runtime refused a tool that it does not have';

COMMENT ON TABLE trajectories IS 'One row per run of an agent.';
COMMENT ON COLUMN trajectories.trajectory_id IS 'hash of the trace and the outermost agent span';
COMMENT ON COLUMN trajectories.trace_id IS 'trace of the outermost agent span';
COMMENT ON COLUMN trajectories.session_id IS 'session or conversation';
COMMENT ON COLUMN trajectories.user_id IS 'end user';
COMMENT ON COLUMN trajectories.tenant_id IS 'tenant';
COMMENT ON COLUMN trajectories.service_name IS 'resource attribute service.name';
COMMENT ON COLUMN trajectories.agent_name IS 'outermost agent';
COMMENT ON COLUMN trajectories.task_id IS 'task that the run attempts';
COMMENT ON COLUMN trajectories.trial IS 'number of the attempt';
COMMENT ON COLUMN trajectories.user_input IS 'what the user asked';
COMMENT ON COLUMN trajectories.final_response IS 'what the agent answered last';
COMMENT ON COLUMN trajectories.tools IS 'executed tools in order, with repeats';
COMMENT ON COLUMN trajectories.tool_call_count IS 'executed tool calls';
COMMENT ON COLUMN trajectories.model_call_count IS 'model calls';
COMMENT ON COLUMN trajectories.error_count IS 'tool and model steps with status error or timeout';
COMMENT ON COLUMN trajectories.mutation_count IS 'executions of mutating tools with effect other than no';
COMMENT ON COLUMN trajectories.input_tokens IS 'tokens, each counted once; NULL where no step reports usage';
COMMENT ON COLUMN trajectories.output_tokens IS 'tokens, each counted once';
COMMENT ON COLUMN trajectories.total_tokens IS 'input_tokens + output_tokens';
COMMENT ON COLUMN trajectories.cost_usd IS 'US dollars of the priced steps; NULL where none is priced';
COMMENT ON COLUMN trajectories.unpriced_model_calls IS 'model calls without a price';
COMMENT ON COLUMN trajectories.start_time IS 'UTC';
COMMENT ON COLUMN trajectories.end_time IS 'UTC; NULL while nothing has ended';
COMMENT ON COLUMN trajectories.duration_ms IS 'milliseconds';
COMMENT ON COLUMN trajectories.complete IS 'the root has ended, or nothing has arrived for 10 minutes, or an import brought it';
COMMENT ON COLUMN trajectories.initial_state IS 'state of the world before the run';
COMMENT ON COLUMN trajectories.final_state IS 'state of the world after the run';
COMMENT ON COLUMN trajectories.last_arrival IS 'when the last record of its traces arrived';
COMMENT ON COLUMN trajectories.root_ended IS 'whether the root span has ended';
COMMENT ON COLUMN trajectories.revision IS 'number that changes when a record of the run arrives or is replaced: the sum of their arrivals in microseconds, modulo 2^61 - 1';

COMMENT ON TABLE findings IS 'One row per (evaluation run, fault).';
COMMENT ON COLUMN findings.finding_id IS 'hash of evaluator, kind, trajectory and span ids: the same occurrence on every run';
COMMENT ON COLUMN findings.fingerprint IS 'hash of evaluator, kind, service, agent, task and tool: the fault, by which nights are compared';
COMMENT ON COLUMN findings.run_id IS 'evaluation run';
COMMENT ON COLUMN findings.evaluator IS 'name of the evaluator';
COMMENT ON COLUMN findings.kind IS 'which rule fired';
COMMENT ON COLUMN findings.severity IS 'error, warning or note';
COMMENT ON COLUMN findings.state IS 'new, known or back: seen in this night, compared with those before; resolved: last seen in an earlier one, and the run is that of then; NULL for other evaluations';
COMMENT ON COLUMN findings.trajectory_id IS 'run of the agent';
COMMENT ON COLUMN findings.trace_id IS 'its trace';
COMMENT ON COLUMN findings.span_id IS 'step at fault';
COMMENT ON COLUMN findings.related_span_ids IS 'other steps that belong to the fault';
COMMENT ON COLUMN findings.tool_name IS 'tool at fault';
COMMENT ON COLUMN findings.message IS 'one sentence with the values';
COMMENT ON COLUMN findings.evidence IS 'JSON object of further columns of the evaluator';

COMMENT ON TABLE measurements IS 'Numbers with their n.';
COMMENT ON COLUMN measurements.run_id IS 'evaluation run';
COMMENT ON COLUMN measurements.metric IS 'name of the metric';
COMMENT ON COLUMN measurements.dimensions IS 'JSON object: what the number is for';
COMMENT ON COLUMN measurements.value IS 'the number; NULL where undefined';
COMMENT ON COLUMN measurements.unit IS 'usd, tokens, ms, ratio, ...';
COMMENT ON COLUMN measurements.n IS 'observations behind the number';
COMMENT ON COLUMN measurements.n_not_evaluable IS 'observations that could not be used';
COMMENT ON COLUMN measurements.low IS 'lower end of the 95 % interval';
COMMENT ON COLUMN measurements.high IS 'upper end of the 95 % interval';

COMMENT ON TABLE not_evaluable IS 'What could not be judged, and why: never a pass.';
COMMENT ON COLUMN not_evaluable.run_id IS 'evaluation run';
COMMENT ON COLUMN not_evaluable.evaluator IS 'name of the evaluator';
COMMENT ON COLUMN not_evaluable.kind IS 'rule that could not be judged';
COMMENT ON COLUMN not_evaluable.trajectory_id IS 'run of the agent';
COMMENT ON COLUMN not_evaluable.reason IS 'what was missing';

COMMENT ON TABLE outcomes IS 'Verdicts on whether a run reached its goal, by channel.';
COMMENT ON COLUMN outcomes.task_id IS 'task';
COMMENT ON COLUMN outcomes.trial IS 'attempt';
COMMENT ON COLUMN outcomes.trajectory_id IS 'run of the agent, where known by id';
COMMENT ON COLUMN outcomes.source IS 'checker, judge or human';
COMMENT ON COLUMN outcomes.passed IS 'whether the goal was reached';
COMMENT ON COLUMN outcomes.score IS 'graded result';
COMMENT ON COLUMN outcomes.detail IS 'reason';
COMMENT ON COLUMN outcomes.recorded_at IS 'when the verdict was given';

COMMENT ON TABLE evaluation_runs IS 'One row per evaluation.';
COMMENT ON COLUMN evaluation_runs.run_id IS 'hexadecimal id';
COMMENT ON COLUMN evaluation_runs.label IS 'name given to the run';
COMMENT ON COLUMN evaluation_runs.started_at IS 'UTC';
COMMENT ON COLUMN evaluation_runs.finished_at IS 'UTC';
COMMENT ON COLUMN evaluation_runs.since IS 'only trajectories that start at or after this';
COMMENT ON COLUMN evaluation_runs.until IS 'only trajectories that start before this';
COMMENT ON COLUMN evaluation_runs.trajectories IS 'trajectories judged';
COMMENT ON COLUMN evaluation_runs.passed IS 'FALSE with findings at or over --fail-on; NULL where nothing was evaluable';
COMMENT ON COLUMN evaluation_runs.config_hash IS 'hash of the configuration';
COMMENT ON COLUMN evaluation_runs.evaluator_versions IS 'JSON object: evaluator to hash of its file';
COMMENT ON COLUMN evaluation_runs.night IS 'night that `agenttrace nightly` judged, by the date on which it begins; NULL for other evaluations';
COMMENT ON COLUMN evaluation_runs.details IS 'JSON object: gate and cases as in `evaluate --format json`, and what the report of a night says beside';

COMMENT ON TABLE judgements IS 'Ledger of `agenttrace nightly`: which runs a night has seen, as they were then. With evaluation_runs.evaluator_versions it says which evaluator has judged which run.';
COMMENT ON COLUMN judgements.run_id IS 'evaluation run';
COMMENT ON COLUMN judgements.trajectory_id IS 'run of the agent';
COMMENT ON COLUMN judgements.revision IS 'its revision then; a later one is judged again';
COMMENT ON COLUMN judgements.judged IS 'FALSE where it was not in the sample';
COMMENT ON COLUMN judgements.is_new IS 'FALSE where a night had seen it before more of it arrived';
COMMENT ON COLUMN judgements.service_name IS 'copy of trajectories.service_name';
COMMENT ON COLUMN judgements.agent_name IS 'copy of trajectories.agent_name';
COMMENT ON COLUMN judgements.task_id IS 'copy of trajectories.task_id';

COMMENT ON TABLE faults IS 'What `agenttrace nightly` knew of each fault after a night: one row for each that was not resolved before.';
COMMENT ON COLUMN faults.run_id IS 'evaluation run';
COMMENT ON COLUMN faults.fingerprint IS 'the fault, as in findings';
COMMENT ON COLUMN faults.state IS 'new, known or back: seen in this night; quiet: not seen; resolved: not seen for long enough; withdrawn: more of its runs has arrived, and they do not have it; NULL: seen in the first night';
COMMENT ON COLUMN faults.quiet_nights IS 'nights since it was seen that would have shown it';
COMMENT ON COLUMN faults.last_seen IS 'night in which it was seen last';
COMMENT ON COLUMN faults.evaluator IS 'name of the evaluator';
COMMENT ON COLUMN faults.kind IS 'which rule fired';
COMMENT ON COLUMN faults.severity IS 'error, warning or note';
COMMENT ON COLUMN faults.service_name IS 'service that has it';
COMMENT ON COLUMN faults.agent_name IS 'agent that has it';
COMMENT ON COLUMN faults.task_id IS 'task at which it has it';
COMMENT ON COLUMN faults.tool_name IS 'tool at fault';
COMMENT ON COLUMN faults.finding_id IS 'the worst of its findings when it was seen last';
COMMENT ON COLUMN faults.trajectory_id IS 'run of that finding';
COMMENT ON COLUMN faults.message IS 'what that finding said';
