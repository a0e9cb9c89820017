import { isGrpcServiceError, type Connection } from '@temporalio/client';
import proto from '@temporalio/proto';

const { INDEXED_VALUE_TYPE_KEYWORD: keyword, INDEXED_VALUE_TYPE_INT: int } =
  proto.temporal.api.enums.v1.IndexedValueType;

const ATTRIBUTES = {
  TrialgateRun: keyword,
  TrialgateIteration: int,
  TrialgatePolicyVersion: int,
  TrialgatePhase: keyword,
};
const ALREADY_EXISTS = 6;

/** Registers the attributes by which Temporal's UI and CLI can filter runs. Each namespace needs them before workflows set them. */
export async function registerSearchAttributes(connection: Connection, namespace = 'default'): Promise<void> {
  try {
    await connection.operatorService.addSearchAttributes({ namespace, searchAttributes: ATTRIBUTES });
  } catch (error) {
    if (!isGrpcServiceError(error) || error.code !== ALREADY_EXISTS) throw error;
  }
}
