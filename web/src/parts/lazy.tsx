// A component whose code is loaded when it is first shown, so that the first page stays small.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { ComponentType } from 'preact';

export function lazy<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
  waiting = 'Loading…',
): (props: Props) => preact.JSX.Element | null {
  let loaded: ComponentType<Props> | undefined;
  return function Lazy(props: Props) {
    const tick = useSignal(0);
    const failed = useSignal(false);
    tick.value;
    useEffect(() => {
      if (loaded) return;
      load().then(
        (component) => {
          loaded = component;
          tick.value++;
        },
        () => {
          failed.value = true;
        },
      );
    }, []);
    if (loaded) {
      const Now = loaded;
      return <Now {...props} />;
    }
    if (failed.value)
      return (
        <p class="note">
          This part could not be loaded: the head was updated or does not answer. Reload the page.
        </p>
      );
    return waiting ? <p class="note">{waiting}</p> : null;
  };
}
