import { createRoot } from 'react-dom/client';
import './style.css';

const pages = {
  '/': () => import('./assistant-ui.jsx'),
  '/copilotkit': () => import('./copilotkit.jsx'),
  '/runtime': () => import('./runtime.jsx'),
};
const { default: Page } = await (pages[location.pathname] ?? pages['/'])();
createRoot(document.getElementById('root')).render(<Page />);
