import { expect, test } from 'vitest';
import { parseRunConfig } from './parse-run-config.ts';

const withLoggers = (loggers: unknown) => parseRunConfig({ model: 'm', tasks: ['t'], iterations: 1, loggers }).loggers;

test('a logger is a name, or a name with its settings', () => {
  expect(withLoggers(['csv', { name: 'mlflow', tracking_uri: 'http://host:5000' }])).toEqual([
    { name: 'csv' },
    { name: 'mlflow', tracking_uri: 'http://host:5000' },
  ]);
});

test.each([
  ['an unknown name', ['tensorbord'], /loggers\.0: .*"tensorboard"\|"mlflow"\|"wandb"\|"trackio"\|"csv"/],
  ['an unknown name with settings', [{ name: 'neptune' }], /loggers\.0: .*"tensorboard"\|"mlflow"/],
  [
    'a setting of another logger',
    [{ name: 'csv', project: 'p' }],
    /loggers\.0\.project: no setting of csv, which has `folder`/,
  ],
  [
    'a setting that no logger has',
    [{ name: 'wandb', projekt: 'p' }],
    /loggers\.0\.projekt: unknown setting, did you mean `project`\?/,
  ],
  ['a logger that is named twice', ['csv', 'csv'], /loggers\.1: csv is named twice: name it once/],
  ['an address without its protocol', [{ name: 'mlflow', tracking_uri: 'host:5000' }], /expected one such as http:/],
  ['a project that no server takes', [{ name: 'wandb', project: 'team/coding' }], /loggers\.0\.project: has one of/],
  ['a password', [{ name: 'mlflow', tracking_uri: 'http://me:secret@host' }], /MLFLOW_TRACKING_PASSWORD/],
])('%s is refused with what to change', (_, loggers, message) => {
  expect(() => withLoggers(loggers)).toThrow(message);
});

test('mlflow has a bound of its traces, which no other logger has', () => {
  expect(withLoggers([{ name: 'mlflow', traces: 0 }])).toEqual([{ name: 'mlflow', traces: 0 }]);
  expect(() => withLoggers([{ name: 'csv', traces: 1 }])).toThrow('no setting of csv');
  expect(() => withLoggers([{ name: 'mlflow', traces: -1 }])).toThrow('traces');
});

test.each([
  ['an address of gRPC', 'grpc://host:4317', /endpoint: is no address of a receiver/],
  ['a password', 'http://me:secret@host:4318', /OTEL_EXPORTER_OTLP_HEADERS/],
  ['a key in its query', 'http://host:4318?key=secret', /OTEL_EXPORTER_OTLP_HEADERS/],
])('otel refuses %s as its endpoint', (_, endpoint, message) => {
  expect(withLoggers([{ name: 'otel', endpoint: 'http://host:4318' }])).toHaveLength(1);
  expect(() => withLoggers([{ name: 'otel', endpoint }])).toThrow(message);
});
