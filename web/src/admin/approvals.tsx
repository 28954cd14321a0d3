// Requests of agent tokens that wait for a person. Nothing is shown while there are none.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, post, problem } from '../data/api';
import { moment } from '../data/format';
import { notify } from '../data/store';

interface Approval {
  id: number;
  agent: string;
  project: string;
  text: string;
  state: string;
  asked_at: string;
  expires_at: string;
}

export function Approvals() {
  const list = useSignal<Approval[]>([]);
  const load = () =>
    get<{ approvals: Approval[] }>('/v1/approvals')
      .then((r) => (list.value = r.approvals.filter((a) => a.state === 'pending')))
      .catch(() => undefined); // a head that is away is reported elsewhere
  useEffect(() => {
    let timer = 0;
    void has('/v1/approvals').then((known) => {
      if (!known) return;
      void load();
      timer = window.setInterval(() => void load(), 5000);
    });
    return () => window.clearInterval(timer);
  }, []);
  const decide = (a: Approval, decision: 'approve' | 'deny') =>
    post(`/v1/approvals/${a.id}`, { decision })
      .then(() => notify(decision === 'approve' ? 'Approved, once' : 'Denied'))
      .catch((e) => notify(problem(e)))
      .then(load);
  if (!list.value.length) return null;
  return (
    <section class="panel" aria-label="Approvals">
      <h2>Agents ask for approval</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Requests of agents">
        <table>
          <thead>
            <tr>
              <th>Agent</th>
              <th>Project</th>
              <th>Request</th>
              <th>Expires</th>
              <th>
                <span class="sr">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.value.map((a) => (
              <tr key={a.id}>
                <td>{a.agent}</td>
                <td>{a.project}</td>
                <td>{a.text}</td>
                <td>{moment(a.expires_at)}</td>
                <td>
                  <button
                    class="small"
                    onClick={() => void decide(a, 'approve')}
                    aria-label={`Approve request ${a.id}`}
                  >
                    Approve
                  </button>{' '}
                  <button
                    class="quiet small"
                    onClick={() => void decide(a, 'deny')}
                    aria-label={`Deny request ${a.id}`}
                  >
                    Deny
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
