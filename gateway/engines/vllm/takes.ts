import type { Takes } from '../adapt-messages.ts';
import type { EngineConnection } from '../connection.ts';
import { takesBy } from '../token-route.ts';

export const takesOf = (connection: EngineConnection, model: string | null): Takes =>
  takesBy(connection, '/tokenize', model === null ? {} : { model });
