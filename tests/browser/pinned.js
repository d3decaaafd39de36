// Plays the feed for pictures: the daemon's own state of its recorded machine, with what differs
// from visit to visit pinned: the clock, the last beats, what happened, and how fast it was.
(() => {
  const NOW = Date.UTC(2026, 4, 12, 14, 30, 5);
  Date.now = () => NOW;
  const wave = (n, around, by, every) => around + by * Math.sin((2 * Math.PI * n) / every);
  const level = (n) => (n > 37 && n < 44 ? "cheap" : n > 32 && n < 50 ? "short" : "full");
  const beats = Array.from({ length: 60 }, (_, n) => ({
    at_ms: NOW - 4000 - (59 - n) * 30000,
    temperature_c: Math.round(10 * (wave(n, 51, 1.2, 17) + (n > 26 && n < 52 ? 17 * Math.sin((Math.PI * (n - 26)) / 26) : 0))) / 10,
    cpu_percent: Math.round(wave(n, 12, 6, 9) + (n > 24 && n < 42 ? 62 : 0)),
    ram_percent: Math.round(wave(n, 30, 2, 31)),
    load_1m: Math.round(100 * (wave(n, 0.4, 0.1, 13) + (n > 24 && n < 46 ? 2.4 : 0))) / 100,
    tokens_per_s: 7, stressed: n > 38 && n < 42, online: true, level: level(n),
  }));
  let id = 0;
  const told = (minutes, group, severity, kind, body) => ({ id: ++id, at_ms: NOW - minutes * 60000, group, severity, kind, body });
  const turn = (minutes, number, outcome, first, all, prompt, tokens) => told(minutes, "turn", "info", "turn.ended", {
    session: "main", turn: number, outcome, backend: tokens ? "hailo" : null, prompt_tokens: prompt, tokens, first_word_ms: first, elapsed_ms: all });
  const happenings = [
    told(412, "fault", "info", "backend.found", { backend: "hailo" }),
    turn(61, 1, "done", 940, 9120, 212, 57),
    told(60, "beat", "info", "beat.summed", { beats: 120, stressed: 0, temperature_mean_c: 49.6, temperature_max_c: 53.1, cpu_mean_percent: 9, ram_max_percent: 31, temperature_min_c: 47 }),
    turn(22, 2, "done", 410, 14830, 288, 101),
    told(14, "body", "warn", "governor.stepped", { from: "full", to: "short", reason: "the processor has 64 °C and soon 68 °C at this rate; 75 °C is the limit" }),
    told(11, "body", "warn", "governor.stepped", { from: "short", to: "cheap", reason: "the firmware slows the processor down" }),
    told(10.5, "body", "warn", "stress.entered", { reason: "the processor has 75.2 °C, 75 is the limit" }),
    turn(9, 3, "cancelled", 620, 3900, null, null),
    told(9, "body", "info", "stress.left", { lasted_s: 90, peak_temperature_c: 75.6, peak_ram_percent: 31.4 }),
    told(4, "body", "info", "governor.stepped", { from: "short", to: "full", reason: "what demanded less is over" }),
    turn(2, 4, "done", 380, 6240, 341, 41),
  ];
  const real = window.fetch.bind(window);
  window.fetch = async (path, options) => {
    if (path !== "/events") return real(path, options);
    const state = await (await real("/state")).json();
    Object.assign(state.body, {
      describe: "I feel well; my processor has 48 °C, it is 14 % at work, 27 % of my memory is in use.",
      at_ms: NOW - 4000, pulse_s: 30, history: beats, quiet_s: 118, counters: { pulses: 824, stress: 1, idle: 3, sleeps: 0 },
      mood: { joy: 0.42, anger: 0.05, sorrow: 0.1, excitement: 0.31, calm: 0.66, dominant: "calm", active_channel: "joy", active_intensity: 0.22 },
    });
    state.body.vitals.cpu_percent = 14;
    Object.assign(state.backends[0], { head_ms: 12, first_token_ms: 380, gap_p50_ms: 142, gap_p99_ms: 171, tokens_per_s: 7, healthy_tokens_per_s: 7.1, prompt_tokens: 841, cached_tokens: 497 });
    for (const backend of state.backends) backend.retry_in_s = null;
    const calm = sessionStorage.getItem("calm") === "yes";
    const rows = calm ? happenings.filter(({ severity }) => severity === "info") : happenings;
    const text = rows.map((row) => `id: ${row.id}\nevent: happening\ndata: ${JSON.stringify(row)}\n\n`).join("") + `event: state\ndata: ${JSON.stringify(state)}\n\n`;
    const stream = new ReadableStream({ start(to) { to.enqueue(new TextEncoder().encode(text)); } });
    return new Response(stream, { headers: { date: new Date(NOW).toUTCString() } });
  };
})();
