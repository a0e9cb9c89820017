import { TrialgateError } from '../../../core/errors.ts';

/** Pods have images of registries alone. */
export const notBuilt = (folder: string): TrialgateError =>
  new TrialgateError(
    'bad_input',
    `${folder}/Dockerfile: sandboxes of the kind kubernetes build no images: build it, push it to a registry that the cluster reaches, and name it as \`docker_image\` under [environment] in task.toml`,
  );
