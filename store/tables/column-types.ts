import { customType } from 'drizzle-orm/pg-core';

/** Bodies are bytes: Postgres text and jsonb refuse `\u0000`, which models do write. */
export const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** Token ids, 4 bytes each, little-endian. */
export const tokenIds = customType<{ data: Int32Array; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (ids) => Buffer.from(ids.buffer, ids.byteOffset, ids.byteLength),
  fromDriver: (raw) => new Int32Array(copyOf(raw)),
});

/** Log-probabilities in nats, 4 bytes each, little-endian: the precision the engine samples with. */
export const floats = customType<{ data: Float32Array; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength),
  fromDriver: (raw) => new Float32Array(copyOf(raw)),
});

/** pg hands out slices of a shared buffer at any offset; typed arrays need their own, aligned. */
const copyOf = (raw: Buffer): ArrayBuffer => new Uint8Array(raw).buffer;
