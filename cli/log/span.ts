import { createHash } from 'node:crypto';

/** The ids of a span. They are made of names in the record, so that a span that is sent again, or linked to before it is sent, has the same ones. */
export type SpanKey = { trace: string; span: string };

type Attribute = string | number | boolean | string[] | null | undefined;

/** A span as OpenTelemetry has it. Times are in milliseconds. */
export type Span = SpanKey & {
  /** The span above it in the same trace. */
  parent?: string;
  name: string;
  /** `client`: a call of a service; absent: work of the run itself. */
  kind?: 'client';
  start: number;
  end: number;
  /** `to_otel.py` knows which numbers are integers. */
  attributes: Record<string, Attribute>;
  links?: SpanKey[];
  /** Why it failed, in a word; absent: it did not. */
  error?: string;
};

const digest = (name: string, length: number): string =>
  createHash('sha256').update(name).digest('hex').slice(0, length);

/** Names a trace and a span of it by the run and their names there. */
export const spanKey = (origin: string, trace: string, span = trace): SpanKey => ({
  trace: digest(`trialgate trace ${origin} ${trace}`, 32),
  span: digest(`trialgate span ${origin} ${span}`, 16),
});

/** Tells a run from an earlier one of the same name. */
export const originOf = ({ id, createdAt }: { id: string; createdAt: Date }): string =>
  `${id}-${createdAt.getTime().toString(36)}`;

/** Names the span of a trial, in the trace of its group. */
export const trialKey = (origin: string, trace: string, trialId: string): SpanKey =>
  spanKey(origin, trace, `trial ${trialId}`);

/** Returns metrics as attributes of a span. */
export const metricAttributes = (metrics: Record<string, number>): Record<string, number> =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [`trialgate.metric.${name}`, value]));
