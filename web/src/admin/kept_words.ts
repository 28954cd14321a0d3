// Sentences for events about what a project keeps on the head: secrets, presets, volumes,
// environments, webhooks.
type Named = { name?: string; project?: number };
export interface Sentence {
  text: string;
  href: string;
}

// Presets are kept among the head's own secrets, as "preset.PROJECT.NAME".
function secretWords(
  { name = '', project = 0 }: Named,
  done: 'set' | 'removed',
  projectName: (id: number) => string,
): Sentence {
  const preset = project ? null : /^preset\.(\d+)\.(.*)$/.exec(name);
  if (preset)
    return {
      text:
        `preset ${preset[2]} of project ${projectName(Number(preset[1]))} was ` +
        (done === 'set' ? 'saved' : 'removed'),
      href: '#/run',
    };
  const of = project ? `of project ${projectName(project)}` : 'of the head';
  return { text: `secret ${name} ${of} was ${done}`, href: '#/secrets' };
}

export function keptWords(
  kind: string,
  event: Record<string, any>,
  projectName: (id: number) => string,
): Sentence | null {
  const environment = (e: Named, done: string) => ({
    text: `environment ${e.name} of project ${projectName(e.project ?? 0)} was ${done}`,
    href: '#/environments',
  });
  switch (kind) {
    case 'secret_set':
      return secretWords(event.secret ?? {}, 'set', projectName);
    case 'secret_removed':
      return secretWords(event, 'removed', projectName);
    case 'volume_declared':
      return { text: `volume ${event.volume?.name} was added`, href: '#/volumes' };
    case 'volume_removed':
      return { text: `volume ${event.name} was removed`, href: '#/volumes' };
    case 'environment_saved':
      return environment(event.environment ?? {}, 'saved');
    case 'saved_environment_removed':
      return environment(event, 'removed');
    case 'webhook_added':
      return {
        text: `webhook ${event.webhook?.id} to ${event.webhook?.url} was added`,
        href: '#/webhooks',
      };
    case 'webhook_removed':
      return { text: `webhook ${event.webhook} was removed`, href: '#/webhooks' };
  }
  return null;
}
