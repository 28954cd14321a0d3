// The identity providers that the head offers on the sign-in page: plain links, because the browser
// leaves this page for the provider's.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

interface Offered {
  name: string;
  kind: string;
}

export function ProviderLinks() {
  const offered = useSignal<Offered[]>([]);
  useEffect(() => {
    fetch('/v1/auth')
      .then((answer) => (answer.ok ? answer.json() : { providers: [] }))
      .then((all: { providers: Offered[] }) => {
        offered.value = all.providers.filter((each) => each.kind === 'oidc');
      })
      .catch(() => undefined); // a token still works
  }, []);
  return (
    <>
      {offered.value.map((each) => (
        <p key={each.name}>
          <a class="button" href={`/v1/auth/login?provider=${encodeURIComponent(each.name)}`}>
            Sign in with {each.name}
          </a>
        </p>
      ))}
    </>
  );
}
