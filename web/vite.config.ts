import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The built files are committed and embedded in the Go binary, so a build must give the same bytes on every machine.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "dist",
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: but the icon
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
