// A page of assistant-ui's stock primitives, and what a user does with it.
import { createElement as h } from 'react';
import { createRoot } from 'react-dom/client';
import {
  ActionBarPrimitive, AssistantRuntimeProvider, BranchPickerPrimitive, ComposerPrimitive, MessagePrimitive, ThreadListItemPrimitive,
  ThreadListPrimitive, ThreadPrimitive,
} from '@assistant-ui/react';
import { until } from '../world.mjs';

const picker = () => h(BranchPickerPrimitive.Root, { className: 'picker', hideWhenSingleBranch: true },
  h(BranchPickerPrimitive.Previous, { className: 'previous' }), h(BranchPickerPrimitive.Number), '/', h(BranchPickerPrimitive.Count),
  h(BranchPickerPrimitive.Next, { className: 'next' }));
const parts = {
  Text: ({ text }) => h('span', { className: 'text' }, text),
  tools: { Fallback: ({ toolName, result }) => h('span', { className: 'tool' }, `${toolName} ${JSON.stringify(result)}`) },
};
const message = (role, action, className) => () => h(MessagePrimitive.Root, { className: `message ${role}` },
  h(MessagePrimitive.Parts, { components: parts }), h(ActionBarPrimitive.Root, null, h(action, { className })), picker());
const components = {
  UserMessage: message('user', ActionBarPrimitive.Edit, 'edit'),
  AssistantMessage: message('assistant', ActionBarPrimitive.Reload, 'reload'),
  EditComposer: () => h(ComposerPrimitive.Root, { className: 'editing' }, h(ComposerPrimitive.Input),
    h(ComposerPrimitive.Send, { className: 'send' })),
};
const ThreadListItem = () => h(ThreadListItemPrimitive.Root, { className: 'item' },
  h(ThreadListItemPrimitive.Trigger, { className: 'open' }, h(ThreadListItemPrimitive.Title)),
  h(ThreadListItemPrimitive.Archive, { className: 'archive' }), h(ThreadListItemPrimitive.Unarchive, { className: 'unarchive' }),
  h(ThreadListItemPrimitive.Delete, { className: 'delete' }));

/** Mounts the page over the runtime that `useRuntime` gives. */
export async function open(useRuntime) {
  const element = document.body.appendChild(document.createElement('div'));
  const root = createRoot(element);
  const page = { element };
  const App = () => {
    page.runtime = useRuntime();
    return h(AssistantRuntimeProvider, { runtime: page.runtime },
      h(ThreadListPrimitive.Root, null, h(ThreadListPrimitive.New, { className: 'new' }),
        h(ThreadListPrimitive.Items, { components: { ThreadListItem } }),
        h(ThreadListPrimitive.Items, { archived: true, components: { ThreadListItem } })),
      h(ThreadPrimitive.Root, null,
        h(ThreadPrimitive.Viewport, null, h(ThreadPrimitive.Messages, { components })),
        h(ComposerPrimitive.Root, { className: 'composer' }, h(ComposerPrimitive.Input), h(ComposerPrimitive.Send, { className: 'send' }),
          h(ComposerPrimitive.Cancel, { className: 'cancel' }))));
  };
  root.render(h(App));
  await until(() => element.querySelector('.composer'), 'the page is there');
  const all = (selector, within = element) => [...within.querySelectorAll(selector)];
  const click = (selector, n = -1) => until(() => {
    const button = all(selector).at(n);
    return button && !button.disabled && (button.click(), true);
  }, `a click on ${selector}`);
  const type = async (within, text) => {
    const input = await until(() => element.querySelector(`${within} textarea`), `${within} to type in`);
    Object.getOwnPropertyDescriptor(window.HTMLTextAreaElement.prototype, 'value').set.call(input, text);
    input.dispatchEvent(new window.Event('input', { bubbles: true }));
    await click(`${within} .send`);
  };
  return Object.assign(page, {
    all,
    click,
    idle: () => page.runtime && !page.runtime.thread.getState().isRunning && !page.runtime.thread.getState().isLoading,
    /** The shown messages, each as its texts and the numbers of its picker: `Answer 2 to Hello 2/2`. */
    messages: () => all('.message').map((message) =>
      [...all('.text, .tool', message), ...all('.picker', message)].map((part) => part.textContent).join(' ')),
    shows: (...messages) => until(() => page.idle() && JSON.stringify(page.messages()) === JSON.stringify(messages),
      JSON.stringify(messages)).catch((error) => {
      throw new Error(`${error.message}: ${JSON.stringify(page.messages())}`);
    }),
    ask: async (text) => {
      await until(page.idle, 'a runtime that is idle');
      await type('.composer', text);
    },
    edit: async (text, n = -1) => {
      await click('.edit', n);
      await type('.editing', text);
    },
    close: () => {
      root.unmount();
      element.remove();
    },
  });
}
