import { z } from 'zod';

/** The loggers, each with its settings. `loggers/trialgate_loggers/to_NAME.py` writes to it. */
const LOGGERS = {
  tensorboard: ['folder'],
  mlflow: ['tracking_uri', 'experiment', 'traces'],
  wandb: ['project', 'entity', 'mode', 'folder'],
  trackio: ['project', 'folder'],
  csv: ['folder'],
  otel: ['endpoint', 'folder'],
} as const satisfies Record<string, readonly string[]>;

export type LoggerName = keyof typeof LOGGERS;
const isLoggerName = (name: string): name is LoggerName => name in LOGGERS;
export const LOGGER_NAMES = Object.keys(LOGGERS).filter(isLoggerName);

/** Returns the names of a logger's settings. */
export const settingsOfLogger = (name: LoggerName): readonly string[] => LOGGERS[name];

const text = z.string().min(1);

/** A name that Weights & Biases and trackio take. */
const project = text
  .max(128)
  .refine((name) => !/[/\\#?%:]/.test(name), 'has one of / \\ # ? % :, which no project may have: choose another name');

/** True for an address of a server over HTTP. */
export const isAddress = (address: string): boolean => /^https?:\/\/[^/]/.test(address) && URL.canParse(address);

const withSettings = z
  .strictObject({
    name: z.enum(LOGGER_NAMES),
    /** The folder of its files. Without it, the logger writes to a folder of the deployment. */
    folder: text.optional(),
    /** The address of mlflow's server; absent: MLFLOW_TRACKING_URI. */
    tracking_uri: text
      .refine(
        (uri) => /^https?:\/\/[^/]/.test(uri),
        'is no address of a server: expected one such as http://127.0.0.1:5000',
      )
      .refine(
        (uri) => !/^\w+:\/\/[^/]*@/.test(uri),
        'has a password, and a run file is shown to people: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD of the workers',
      )
      .optional(),
    /** The address of an OTLP receiver over HTTP; absent: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT. */
    endpoint: text
      .refine(isAddress, 'is no address of a receiver: expected one such as http://127.0.0.1:4318')
      .refine(
        (endpoint) => !/^\w+:\/\/[^/]*@|[?#]/.test(endpoint),
        'has a password, a query or a fragment, and a run file is shown to people: set OTEL_EXPORTER_OTLP_HEADERS of the workers',
      )
      .optional(),
    experiment: text.optional(),
    /** The most trials of an iteration or an evaluation that mlflow gets as traces. */
    traces: z.int().min(0).max(10_000).optional(),
    project: project.optional(),
    /** The user or team of Weights & Biases; absent: the key's own. */
    entity: text.optional(),
    mode: z.enum(['online', 'offline']).optional(),
  })
  .superRefine(({ name, ...settings }, context) => {
    const known = settingsOfLogger(name);
    for (const key of Object.keys(settings))
      if (!known.includes(key))
        context.addIssue({
          code: 'custom',
          path: [key],
          message: `no setting of ${name}, which has ${known.map((each) => `\`${each}\``).join(', ')}`,
        });
  });

const logger = z.union([z.enum(LOGGER_NAMES).transform((name) => ({ name })), withSettings]).pipe(withSettings);

/** The loggers of a run: names, or names with their settings. */
export const loggerList = z.array(logger).superRefine((list, context) => {
  for (const [index, { name }] of list.entries())
    if (list.findIndex((each) => each.name === name) < index)
      context.addIssue({ code: 'custom', path: [index], message: `${name} is named twice: name it once` });
});

export type LoggerSetting = z.output<typeof withSettings>;
