import { sampledFromBy } from '../sampled-from.ts';

export const sampledFrom = sampledFromBy({
  exclusions: ['min_tokens'],
  changes: ['logit_bias', 'custom_logit_processor', 'watermark', 'beam_width'],
});
