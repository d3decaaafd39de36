// Every text of the page, in both languages: key, English, Chinese. {name} is filled in.
const TABLE = {
  "skip": ["Skip to the message", "跳到输入框"],
  "sessions": ["Conversations", "对话列表"],
  "sessions.show": ["Show conversations", "显示对话列表"],
  "sessions.hide": ["Hide conversations", "隐藏对话列表"],
  "sessions.close": ["Close the list", "关闭列表"],
  "sessions.none": ["Nothing said yet.", "还没有对话。"],
  "sessions.away": ["The list comes back with the connection.", "恢复连接后显示列表。"],
  "new": ["New chat", "新对话"],
  "untitled": ["New chat", "新对话"],
  "main": ["Main conversation", "主对话"],
  "rename": ["Rename “{title}”", "重命名“{title}”"],
  "rename.label": ["New name", "新名称"],
  "delete": ["Delete “{title}”", "删除“{title}”"],
  "delete.title": ["Delete this conversation?", "删除这个对话？"],
  "delete.text": ["“{title}” and everything said in it will be gone for good.", "“{title}”及其全部内容将被永久删除。"],
  "yes": ["Delete", "删除"],
  "no": ["Keep it", "保留"],
  "close": ["Close", "关闭"],
  "failed.list": ["That did not work: {why}", "操作未成功：{why}"],
  "conversation": ["Conversation", "对话"],
  "latest": ["Latest", "最新"],
  "earlier": ["Load earlier messages", "加载更早的消息"],
  "earlier.asking": ["Loading earlier messages", "正在加载更早的消息"],
  "earlier.done": ["{n} earlier messages loaded.", "已加载 {n} 条更早的消息。"],
  "renewed": ["This page is older than the program it talks to. Load it again; what you typed is kept.", "页面版本比程序旧，请重新加载，输入的内容会保留。"],
  "renewed.now": ["Load again", "重新加载"],
  "message": ["Message", "消息"],
  "placeholder": ["Write a message", "输入消息"],
  "send": ["Send", "发送"],
  "stop": ["Stop the answer (Esc)", "停止回答（Esc）"],
  "hint": ["Enter sends · Shift+Enter new line · {key}+K conversations", "Enter 发送 · Shift+Enter 换行 · {key}+K 对话列表"],
  "hint.short": ["Enter sends · Shift+Enter new line", "Enter 发送 · Shift+Enter 换行"],
  "hint.busy": ["Esc stops · what you send waits its turn", "Esc 停止 · 新消息将排队等待"],
  "hint.away": ["Not connected: what you send is kept", "未连接：发送的消息会保留"],
  "hint.long": ["Too long: {n} of at most {max} bytes", "太长：{n} 字节，最多 {max} 字节"],
  "hello": ["What shall we talk about?", "想聊点什么？"],
  "hello.text": ["Everything stays on this machine. A small model takes its time; you see every word as it comes.", "一切都留在这台机器上。小模型需要一点时间，每个字都会即时显示。"],
  "you": ["You said", "你说"],
  "agent": ["{name} answered", "{name} 回答"],
  "kept": ["Kept; goes out when connected", "已保留，连接后发出"],
  "kept.turn": ["Kept; goes out after this answer", "已保留，回答结束后发出"],
  "refused": ["Not sent: {why}", "未发送：{why}"],
  "again": ["Send again", "重新发送"],
  "discard": ["Put back", "放回输入框"],
  "thinking": ["Thinking", "思考中"],
  "thinking.about": ["Thinking, about {n} s", "思考中，大约 {n} 秒"],
  "thinking.longer": ["Thinking, a little longer than expected", "思考中，比预计稍久"],
  "copy": ["Copy", "复制"],
  "copy.code": ["Copy code", "复制代码"],
  "copied": ["Copied", "已复制"],
  "copy.failed": ["Copying is not possible here", "无法复制"],
  "retry": ["Retry", "重试"],
  "cancelled": ["You stopped this answer.", "你停止了这个回答。"],
  "interrupted": ["This answer was interrupted.", "这个回答被中断了。"],
  "cut": ["cut at its length limit", "已达长度上限"],
  "clipped": ["your message was shortened", "消息已被缩短"],
  "empty": ["An empty answer.", "回答为空。"],
  "said.done": ["{name}: {text}", "{name}：{text}"],
  "online": ["Connected again.", "已重新连接。"],
  "away": ["The connection is gone. Trying again.", "连接已断开，正在重试。"],
  "away.in": ["Not connected. Next try in {n} s.", "未连接，{n} 秒后重试。"],
  "away.now": ["Try now", "立即重试"],
  "chip.away": ["Not connected", "未连接"],
  "chip.offline": ["No model", "没有模型"],
  "chip.reserve": ["Small reserve model", "小型备用模型"],
  "reserve": ["A small reserve model inside the program answers: short, simple and often wrong. For good answers start Ollama with qwen2.5:1.5b.", "由程序内置的小型备用模型回答：简短，常有错误。要得到好的回答，请启动 Ollama 并使用 qwen2.5:1.5b。"],
  "offline": ["No model answers right now. Your messages are kept in the log.", "目前没有可用的模型。消息会保存在日志中。"],
  "about.title": ["Who speaks", "谁在回答"],
  "about.primary": ["first choice", "首选"],
  "about.fallback": ["when the first is away", "备选"],
  "about.reserve": ["reserve inside the program", "内置备用"],
  "about.closed": ["ready", "就绪"],
  "about.open": ["away", "不可用"],
  "about.half-open": ["being tried", "正在尝试"],
  "about.retry": ["next try in {n} s", "{n} 秒后重试"],
  "about.rate": ["{n} tokens a second", "每秒 {n} 个词元"],
  "about.degraded": ["much slower than it was", "比平时慢很多"],
  "about.version": ["crayfish {version}, up for {time}", "crayfish {version}，已运行 {time}"],
  "about.nothing": ["Not known while there is no connection.", "未连接时无法得知。"],
  "about.speaks": ["answers now", "当前回答者"],
  "seconds": ["{n} s", "{n} 秒"],
  "theme.system": ["Like the system", "跟随系统"],
  "theme.light": ["Light", "浅色"],
  "theme.dark": ["Dark", "深色"],
  "theme.label": ["Colours: {now}. Change", "颜色：{now}。切换"],
  "language.next": ["中文", "English"],
  "language.label": ["Change the language to 中文", "语言切换为 English"],
  "token.title": ["This crayfish asks for its token", "需要访问令牌"],
  "token.text": ["It is in the configuration of the machine it runs on. It is kept in this browser until you forget it.", "令牌在运行它的机器的配置中，会保存在此浏览器，直到你清除为止。"],
  "token.label": ["Token", "令牌"],
  "token.enter": ["Enter", "进入"],
  "token.forget": ["Forget this device", "忘记此设备"],
  "token.wrong": ["That token does not fit.", "令牌不正确。"],
  "now": ["now", "刚刚"],
  "code.text": ["text", "文本"],
  "error.offline": ["", "目前没有可用的模型。"],
  "error.overloaded": ["", "等待的消息太多，请稍后再试。"],
  "error.broke_off": ["", "回答中途中断，请重试。"],
  "error.too_late": ["", "未能及时完成，较短的问题可能可以。"],
  "error.preempted": ["", "因更重要的事情而搁置。"],
  "error.interrupted": ["", "回答时程序被关闭。"],
  "error.internal": ["", "内部出错，已记录在日志中，请重试。"],
  "error.stopping": ["", "程序正在关闭。"],
  "error.not_stored": ["", "消息无法保存。"],
  "error.too_long": ["", "消息太长。"],
};

export const language = () => (document.documentElement.lang.startsWith("zh") ? "zh" : "en");

/** The text of a key in the language of the page. */
export function t(key, values = {}) {
  const row = TABLE[key];
  const text = row ? row[language() === "zh" ? 1 : 0] : key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** The daemon's sentence in English; in Chinese ours, where the code is known, and its own after it. */
export function fault(code, detail) {
  const known = `error.${code}`;
  const ours = known in TABLE ? t(known) : "";
  if (!ours) return detail || code;
  return detail ? `${ours}（${detail}）` : ours;
}

/** How long ago, in words. */
export function ago(at, now = Date.now()) {
  const s = Math.round((at - now) / 1000);
  if (!Number.isFinite(s)) return "";
  if (s > -45) return t("now");
  const format = new Intl.RelativeTimeFormat(language(), { numeric: "auto", style: "short" });
  const steps = [["minute", 60], ["hour", 3600], ["day", 86400], ["week", 604800], ["month", 2629800], ["year", 31557600]];
  let chosen = steps[0];
  for (const step of steps) if (-s >= step[1] * 0.9) chosen = step;
  return format.format(Math.round(s / chosen[1]), chosen[0]);
}

/** A duration in words. */
export function lasting(s) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, length] = units.find(([, length]) => s >= length) ?? ["second", 1];
  return new Intl.NumberFormat(language(), { style: "unit", unit, unitDisplay: "long" }).format(Math.floor(s / length));
}

/** Puts the texts of the language into everything that names its key. */
export function fill(root = document) {
  for (const node of root.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of root.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
    if (node.tagName === "BUTTON") node.title = t(node.dataset.tLabel);
  }
  for (const node of root.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
}
