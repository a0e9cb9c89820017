import { z } from 'zod';
import { OPERATIONS, type Operation } from './operations.ts';
import { deploymentState } from './deployment-schemas.ts';
import * as runSchemas from './run-schemas.ts';
import * as schemas from './schemas.ts';
import { RUN_ID, TRIAL_ID } from '../../../core/ids.ts';

const named = {
  Opening: schemas.opening,
  Opened: schemas.opened,
  Session: schemas.session,
  Turn: schemas.turn,
  Sample: schemas.sample,
  Samples: schemas.samples,
  SampleLine: schemas.sampleLine,
  Summary: schemas.summary,
  Page: schemas.page,
  Reward: schemas.reported,
  RewardReply: schemas.reportedReply,
  Claim: schemas.claiming,
  ClaimReply: schemas.claimReply,
  Report: schemas.reporting,
  ReportReply: schemas.reportingReply,
  Completed: schemas.ended('completed'),
  Deleted: schemas.ended('deleted'),
  Deletion: schemas.deletion,
  DeletedSessions: schemas.deletedSessions,
  EngineList: schemas.engineList,
  EngineChange: schemas.engineChange,
  Deployment: deploymentState,
  RunList: runSchemas.runList,
  RunDetails: runSchemas.runDetails,
  IterationList: runSchemas.iterationList,
  GroupList: runSchemas.groupList,
  Timeline: runSchemas.timeline,
  DroppedWork: runSchemas.droppedWork,
  RunVerb: runSchemas.runVerb,
  VerbReply: runSchemas.verbReply,
  RunStart: runSchemas.runStart,
  StartLine: runSchemas.startLine,
  SearchResult: runSchemas.searchResult,
  Transcript: runSchemas.transcript,
  CallRequest: runSchemas.callRequest,
  Health: schemas.health,
  Failure: schemas.failed,
} satisfies Record<string, z.ZodType>;
export type SchemaName = keyof typeof named;

const refer = (name: SchemaName) => ({ $ref: `#/components/schemas/${name}` });

/** The OpenAPI 3.1 document of all routes except the models' own, which the authors of their protocols describe. */
export function openApiDocument(version: string) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of OPERATIONS) (paths[operation.path] ??= {})[operation.method] = described(operation);
  return {
    openapi: '3.1.0',
    info: {
      title: 'Trialgate',
      version,
      description:
        "The gateway's own routes. An agent's calls of the model go to its session's `base_url` with its `api_key`, in a protocol of OpenAI, Anthropic or Google, and are not part of this document.",
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: components(),
      securitySchemes: {
        admin: { type: 'http', scheme: 'bearer', description: "The deployment's admin key" },
        run: {
          type: 'http',
          scheme: 'bearer',
          description: 'The key of one run; `npx trialgate key RUN` prints it',
        },
        reader: {
          type: 'http',
          scheme: 'bearer',
          description: 'The deployment’s read-only key, if it has one (`read_key`)',
        },
        trial: {
          type: 'http',
          scheme: 'bearer',
          description: "The session's own `api_key`, while its attempt is open",
        },
      },
    },
  };
}

const PATH_PARAMETERS = [
  {
    name: 'run_id',
    in: 'path',
    required: true,
    description: 'The run’s id',
    schema: { type: 'string', pattern: RUN_ID.source },
  },
  {
    name: 'trial_id',
    in: 'path',
    required: true,
    description: 'The trial’s id, percent-encoded because it may contain slashes',
    schema: { type: 'string', pattern: TRIAL_ID.source },
  },
  {
    name: 'call_id',
    in: 'path',
    required: true,
    description: 'The call’s id, as the transcript has it',
    schema: { type: 'string', format: 'uuid' },
  },
  {
    name: 'iteration',
    in: 'path',
    required: true,
    description: 'The number of the iteration, from 0',
    schema: { type: 'integer', minimum: 0, maximum: 1_000_000_000 },
  },
  {
    name: 'sha256',
    in: 'path',
    required: true,
    description: 'The SHA-256 of the bytes, in hex',
    schema: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  },
];

function described({ id, method, summary, keys, path, query, body, reply, lines, failures }: Operation) {
  const inPath = PATH_PARAMETERS.filter(({ name }) => path.includes(`{${name}}`));
  const content =
    typeof reply === 'string'
      ? { [lines ? 'application/jsonl' : 'application/json']: { schema: refer(reply) } }
      : { [reply.type]: { schema: { type: 'string' } } };
  return {
    operationId: id,
    summary,
    security: waysOf(method, keys).map((key) => ({ [key]: [] })),
    parameters: [...inPath, ...parametersOf(query)],
    ...(body
      ? { requestBody: { required: body.required, content: { 'application/json': { schema: refer(body.schema) } } } }
      : {}),
    responses: {
      200: { description: lines ? 'One value a line' : 'Success', content },
      ...Object.fromEntries(
        Object.entries(failures).map(([status, description]) => [
          status,
          { description, content: { 'application/json': { schema: refer('Failure') } } },
        ]),
      ),
    },
  };
}

function parametersOf(query: z.ZodObject | undefined) {
  return Object.entries(query?.shape ?? {}).map(([name, schema]) => ({
    name,
    in: 'query',
    required: false,
    schema: plain(z.toJSONSchema(schema)),
  }));
}

/** Schemas that others refer to by name. Requests and replies share them, so a reply may have more fields than its schema. */
function components(): Record<string, unknown> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id });
  const { schemas: made } = z.toJSONSchema(registry, { io: 'input', uri: (id) => `#/components/schemas/${id}` });
  return Object.fromEntries(Object.entries(made).map(([id, schema]) => [id, plain(schema)]));
}

/** Returns a schema without `$schema` and `$id`, which have no place within a document. */
const plain = (schema: object) =>
  Object.fromEntries(Object.entries(schema).filter(([name]) => name !== '$schema' && name !== '$id'));

/** Returns the keys that open a route: the read-only key opens what reads with the admin key. */
const waysOf = (method: Operation['method'], keys: Operation['keys']): string[] =>
  method === 'get' && keys.includes('admin') ? [...keys, 'reader'] : keys;
