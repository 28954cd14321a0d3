// Projects, users and tokens: what there is, and making tokens, shown once.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, call, get, post } from './api';
import { moment } from './format';
import { status } from './store';

interface Token { id: number; name: string; user: string; scope: string; created_at: string; expires_at: string | null }
interface Project { name: string; weight: number; members: Record<string, string> }
interface User { name: string; unix_name: string; role: string }

export function Admin() {
  const tokens = useSignal<Token[]>([]);
  const projects = useSignal<Project[]>([]);
  const users = useSignal<User[]>([]);
  const secret = useSignal('');
  const error = useSignal('');
  const load = async () => {
    try {
      tokens.value = (await get<{ tokens: Token[] }>('/v1/tokens')).tokens;
      projects.value = (await get<{ projects: Project[] }>('/v1/projects')).projects;
      users.value = (await get<{ users: User[] }>('/v1/users')).users;
    } catch (e) { error.value = e instanceof ApiError ? e.message : String(e); }
  };
  useEffect(() => { void load(); }, []);
  const make = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    try {
      const made = await post<{ token: string }>('/v1/tokens', { name: form.get('name'), scope: form.get('scope'), life_s: Number(form.get('days')) * 86400 });
      secret.value = made.token;
      await load();
    } catch (e) { error.value = e instanceof ApiError ? e.message : String(e); }
  };
  const revoke = async (id: number) => {
    try { await call('DELETE', `/v1/tokens/${id}`); await load(); } catch (e) { error.value = e instanceof ApiError ? e.message : String(e); }
  };
  const s = status.value!;
  return (
    <section>
      <h1>Admin</h1>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      <p class="note">Billow {s.version}, epoch {s.epoch}, up since {moment(s.started_at)}, data in <code>{s.data_dir}</code>, store {s.store}.</p>
      <h2>Tokens</h2>
      <form class="inline" onSubmit={make}>
        <label>Name <input name="name" required /></label>
        <label>May <select name="scope"><option value="full">do what I may</option><option value="read">look only</option></select></label>
        <label>Days <input name="days" type="number" min="1" value="30" /></label>
        <button>Make a token</button>
      </form>
      {secret.value && <p class="secret" role="status">Shown this once: <code>{secret.value}</code></p>}
      <div class="scroll"><table>
        <thead><tr><th>Name</th><th>User</th><th>May</th><th>Made</th><th>Until</th><th /></tr></thead>
        <tbody>{tokens.value.map((t) => <tr><td>{t.name}</td><td>{t.user}</td><td>{t.scope}</td><td>{moment(t.created_at)}</td><td>{moment(t.expires_at)}</td>
          <td><button class="quiet" onClick={() => revoke(t.id)} aria-label={`Revoke ${t.name}`}>Revoke</button></td></tr>)}</tbody>
      </table></div>
      <h2>Projects</h2>
      <div class="scroll"><table>
        <thead><tr><th>Name</th><th>Weight</th><th>Members</th></tr></thead>
        <tbody>{projects.value.map((p) => <tr><td>{p.name}</td><td>{p.weight}</td><td>{Object.entries(p.members).map(([u, r]) => `${u} (${r})`).join(', ')}</td></tr>)}</tbody>
      </table></div>
      <h2>Users</h2>
      <div class="scroll"><table>
        <thead><tr><th>Name</th><th>Unix user</th><th>Role</th></tr></thead>
        <tbody>{users.value.map((u) => <tr><td>{u.name}</td><td>{u.unix_name}</td><td>{u.role}</td></tr>)}</tbody>
      </table></div>
    </section>
  );
}
