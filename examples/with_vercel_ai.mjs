// npm: ai@6 @ai-sdk/openai@3 zod@4 @opentelemetry/sdk-trace-node@2 @opentelemetry/exporter-trace-otlp-proto
// An agent of the Vercel AI SDK refunds an invoice; the SDK's own telemetry sends the spans to an OTLP endpoint.
// The session's id is metadata of the telemetry.

import { createOpenAI } from "@ai-sdk/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();

let attempts = 0;
const tools = {
  get_invoice: tool({
    description: "Reads an invoice.",
    inputSchema: z.object({ invoice_id: z.string() }),
    execute: async ({ invoice_id }) => ({ invoice_id, order_id: "A-12", amount: 30.0 }),
  }),
  issue_refund: tool({
    description: "Refunds an order.",
    inputSchema: z.object({ order_id: z.string(), amount: z.number() }),
    execute: async ({ order_id, amount }) => {
      attempts += 1;
      if (attempts === 1) {
        throw Object.assign(new Error("the bank did not answer within 30 s"), { name: "TimeoutError" });
      }
      return `refunded ${amount} on ${order_id}`;
    },
  }),
};

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const { text } = await generateText({
  model: openai.chat("gpt-4o-mini"),
  prompt: "Refund invoice INV-7 in full.",
  tools,
  stopWhen: stepCountIs(8),
  experimental_telemetry: { isEnabled: true, functionId: "refunds", metadata: { sessionId: "customer-17" } },
});
console.log(text);
await provider.shutdown();
