import { customType } from 'drizzle-orm/pg-core';

/** Bodies are stored as bytes, because PostgreSQL's text and jsonb refuse `\u0000`, which models do write. */
export const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** Token ids, 4 bytes each, little-endian. */
export const tokenIds = customType<{ data: Int32Array; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (ids) => Buffer.from(ids.buffer, ids.byteOffset, ids.byteLength),
  fromDriver: (raw) => new Int32Array(copyOf(raw)),
});

/** Log-probabilities in nats, 4 bytes each, little-endian. This is the precision in which the engine samples. */
export const floats = customType<{ data: Float32Array; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength),
  fromDriver: (raw) => new Float32Array(copyOf(raw)),
});

/** pg returns slices of a shared buffer at any offset; a typed array needs its own aligned buffer. */
const copyOf = (raw: Buffer): ArrayBuffer => new Uint8Array(raw).buffer;
