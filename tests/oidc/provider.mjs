// An OpenID provider for the sign-in tests, on loopback: people are in a file that the test can
// change while it runs ({"accounts": {"ana": {"groups": ["ml"], …}}}); an account that is not in
// it, or is disabled, is refused at its next refresh. Its login and consent pages are the
// package's own.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, people] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const accounts = () => JSON.parse(readFileSync(people, 'utf8')).accounts;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'billow',
      client_secret: 'a secret of the client',
      application_type: 'native',
      grant_types: [
        'authorization_code',
        'refresh_token',
        'urn:ietf:params:oauth:grant-type:device_code',
      ],
      redirect_uris: ['http://127.0.0.1/callback', ...JSON.parse(process.env.REDIRECTS ?? '[]')],
      response_types: ['code'],
    },
    {
      client_id: 'other',
      client_secret: 'of another client',
      application_type: 'native',
      grant_types: ['authorization_code'],
      redirect_uris: ['http://127.0.0.1/callback'],
      response_types: ['code'],
    },
  ],
  claims: {
    openid: ['sub'],
    profile: ['preferred_username'],
    email: ['email', 'email_verified'],
    groups: ['groups'],
  },
  conformIdTokenClaims: false,
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  features: {
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
  },
  pkce: { required: () => true },
  ttl: {
    AccessToken: 600,
    IdToken: 600,
    Interaction: 600,
    Session: 600,
    Grant: 600,
    RefreshToken: 3600,
    DeviceCode: 600,
  },
  rotateRefreshToken: true,
  async findAccount(context, id) {
    const found = accounts()[id];
    if (!found || found.disabled) return undefined;
    return { accountId: id, claims: async () => ({ sub: id, preferred_username: id, ...found }) };
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
