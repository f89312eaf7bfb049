// npm: @opentelemetry/api @opentelemetry/resources @opentelemetry/sdk-trace-node @opentelemetry/sdk-logs @opentelemetry/exporter-trace-otlp-http @opentelemetry/exporter-trace-otlp-proto @opentelemetry/exporter-trace-otlp-grpc @opentelemetry/exporter-logs-otlp-http @opentelemetry/exporter-logs-otlp-proto @opentelemetry/exporter-logs-otlp-grpc
// Sends two spans and a log record with the exporters of the OpenTelemetry SDK for Node: node exporters.mjs http|proto|grpc

import { SpanStatusCode, context, trace } from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const kind = process.argv[2];
const { OTLPTraceExporter } = await import(`@opentelemetry/exporter-trace-otlp-${kind}`);
const { OTLPLogExporter } = await import(`@opentelemetry/exporter-logs-otlp-${kind}`);
const resource = resourceFromAttributes({ "service.name": "exporters" });
const tracers = new NodeTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
const logs = new LoggerProvider({ resource, processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter() })] });
tracers.register();

const tracer = tracers.getTracer("lib", "1.0");
tracer.startActiveSpan("invoke_agent", { attributes: { "gen_ai.operation.name": "invoke_agent" } }, (agent) => {
  const link = { context: agent.spanContext(), attributes: { why: "cause" } };
  const attributes = { text: "grüße 🚀", whole: 9007199254740991, half: 0.5, yes: true, list: ["a", "b"], numbers: [1, 2] };
  tracer.startActiveSpan("execute_tool", { kind: 2, attributes, links: [link] }, (tool) => {
    tool.addEvent("event", { n: 1 });
    tool.setStatus({ code: SpanStatusCode.ERROR, message: "boom" });
    logs.getLogger("lib", "1.0").emit({ eventName: "gen_ai.choice", body: { index: 0 }, context: context.active() });
    tool.end();
  });
  agent.end();
});
await Promise.all([tracers.shutdown(), logs.shutdown()]);
