import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Random } from '../scenarios/fuzz/random.ts';

/** The vocabulary size of the toy tokenizer (`tests/support/fakes/toy-tokenizer.ts`), rounded up. */
export const VOCABULARY = 1024;
const WIDTH = 32;
const INNER = 64;
const LAYERS = 2;
const KEYS = 16;

const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: VOCABULARY,
  hidden_size: WIDTH,
  intermediate_size: INNER,
  num_hidden_layers: LAYERS,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 4096,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  dtype: 'bfloat16',
};

/** Writes a Llama with some 50,000 random weights, whose predictions are nearly uniform. The real trainer trains it in milliseconds. */
export function writeTinyModel(folder: string): void {
  const random = new Random(7);
  const tensors: [string, number[]][] = [
    ['model.embed_tokens.weight', [VOCABULARY, WIDTH]],
    ['model.norm.weight', [WIDTH]],
  ];
  for (let i = 0; i < LAYERS; i++) {
    const layer = `model.layers.${i}`;
    tensors.push(
      [`${layer}.input_layernorm.weight`, [WIDTH]],
      [`${layer}.post_attention_layernorm.weight`, [WIDTH]],
      [`${layer}.self_attn.q_proj.weight`, [WIDTH, WIDTH]],
      [`${layer}.self_attn.k_proj.weight`, [KEYS, WIDTH]],
      [`${layer}.self_attn.v_proj.weight`, [KEYS, WIDTH]],
      [`${layer}.self_attn.o_proj.weight`, [WIDTH, WIDTH]],
      [`${layer}.mlp.gate_proj.weight`, [INNER, WIDTH]],
      [`${layer}.mlp.up_proj.weight`, [INNER, WIDTH]],
      [`${layer}.mlp.down_proj.weight`, [WIDTH, INNER]],
    );
  }
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  const parts: Buffer[] = [];
  let offset = 0;
  for (const [name, shape] of tensors) {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () =>
      name.includes('norm') ? 1 : 0.07 * (random.next() - 0.5),
    );
    const part = asBfloat16(values);
    header[name] = { dtype: 'BF16', shape, data_offsets: [offset, offset + part.length] };
    offset += part.length;
    parts.push(part);
  }
  const text = JSON.stringify(header);
  const padded = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, padded, ...parts]));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(CONFIG));
}

/** Returns the upper half of each number's bits. */
function asBfloat16(values: Float32Array): Buffer {
  const halves = new Uint16Array(values.buffer).filter((_, i) => i % 2 === 1);
  return Buffer.from(halves.buffer);
}
