import { afterEach, expect, test, vi } from 'vitest';
import { tracesEndpoint } from './destination.ts';

const BASE = 'OTEL_EXPORTER_OTLP_ENDPOINT';
const TRACES = 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT';
afterEach(() => vi.unstubAllEnvs());

test('the address of traces comes from the setting, then from the variable of traces as it is, then from that of all signals', () => {
  vi.stubEnv(BASE, '');
  vi.stubEnv(TRACES, '');
  expect(tracesEndpoint(undefined)).toBeUndefined();
  vi.stubEnv(BASE, 'http://base:4318/otlp/');
  expect(tracesEndpoint(undefined)).toBe('http://base:4318/otlp/v1/traces');
  vi.stubEnv(TRACES, 'http://traces:4318/here?key=k');
  expect(tracesEndpoint(undefined)).toBe('http://traces:4318/here?key=k');
  expect(tracesEndpoint('http://given:4318')).toBe('http://given:4318/v1/traces');
  expect(tracesEndpoint('http://given:4318/v1/traces')).toBe('http://given:4318/v1/traces');
});
