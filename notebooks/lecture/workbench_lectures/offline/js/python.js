// What translated Python needs: its operators over numbers, lists and arrays, its formats, a little of numpy, and
// plotly's figure. Lists and tuples are JavaScript's arrays, dictionaries its objects, numpy's arrays are `Nd`.

/** An array as numpy's: flat data and a shape. */
class Nd {
  constructor(data, shape = [data.length]) {
    this.data = data;
    this.shape = shape;
  }
  get size() { return this.data.length; }
  get ndim() { return this.shape.length; }
  get length() { return this.shape[0]; }
  get T() {
    if (this.ndim < 2) return this;
    const [rows, columns] = this.shape;
    return new Nd(Array.from({ length: rows * columns }, (_, k) => this.data[(k % rows) * columns + Math.floor(k / rows)]), [columns, rows]);
  }
  /** Its items along the first axis. */
  items() {
    if (this.ndim === 1) return [...this.data];
    const inner = this.shape.slice(1), step = inner.reduce((a, b) => a * b, 1);
    return Array.from({ length: this.shape[0] }, (_, i) => new Nd(this.data.slice(i * step, (i + 1) * step), inner));
  }
  tolist() { return this.ndim ? this.items().map((item) => (item instanceof Nd ? item.tolist() : item)) : this.data[0]; }
}

const isArray = (x) => x instanceof Nd;
const nd = (x) => (isArray(x) ? x : Array.isArray(x) ? np.array([x]) : new Nd([x], []));

/** Apply f to numbers, or elementwise with numpy's broadcasting. */
function each(f, ...args) {
  if (!args.some((a) => isArray(a) || Array.isArray(a))) return f(...args);
  if (args.length === 1 && isArray(args[0])) return new Nd(args[0].data.map((x) => f(x)), args[0].shape);
  if (args.length === 2 && isArray(args[0]) && typeof args[1] === "number") return new Nd(args[0].data.map((x) => f(x, args[1])), args[0].shape);
  if (args.length === 2 && isArray(args[1]) && typeof args[0] === "number") return new Nd(args[1].data.map((x) => f(args[0], x)), args[1].shape);
  const arrays = args.map(nd), rank = Math.max(...arrays.map((a) => a.ndim));
  const shape = Array.from({ length: rank }, (_, i) => Math.max(...arrays.map((a) => a.shape[i - rank + a.ndim] ?? 1)));
  if (arrays.some((a) => a.shape.some((n, i) => n === 0))) return new Nd([], shape.map((n, i) => (arrays.some((a) => a.shape[i - rank + a.ndim] === 0) ? 0 : n)));
  const size = shape.reduce((a, b) => a * b, 1);
  const strides = arrays.map((a) => {
    let step = 1;
    const own = a.shape.map(() => 0);
    for (let i = a.ndim - 1; i >= 0; i--) (own[i] = a.shape[i] === 1 ? 0 : step), (step *= a.shape[i]);
    return Array.from({ length: rank }, (_, i) => own[i - rank + a.ndim] ?? 0);
  });
  const data = new Array(size), at = arrays.map(() => 0), count = shape.map(() => 0), values = new Array(arrays.length);
  for (let k = 0; k < size; k++) {
    for (let a = 0; a < arrays.length; a++) values[a] = arrays[a].data[at[a]];
    data[k] = f(...values);
    for (let i = rank - 1; i >= 0; i--) {
      count[i] += 1;
      for (let a = 0; a < arrays.length; a++) at[a] += strides[a][i];
      if (count[i] < shape[i]) break;
      for (let a = 0; a < arrays.length; a++) at[a] -= strides[a][i] * shape[i];
      count[i] = 0;
    }
  }
  return new Nd(data, shape);
}

/** A function by hand: f(arguments, keywords). */
const native = (f) => Object.assign(f, { native: true });
const spread = (f) => native((args) => f(...args));
const elementwise = (f) => native((args) => each(f, ...args));

const same = (a, b) => {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => same(x, b[i]));
  return a === b;
};
const number = (f) => (a, b) => (isArray(a) || isArray(b) ? each(f, a, b) : f(a, b));

const METHODS = {
  string: {
    join: (s, [list]) => py.iter(list).join(s),
    removesuffix: (s, [end]) => (end && s.endsWith(end) ? s.slice(0, -end.length) : s),
    replace: (s, [a, b]) => s.replaceAll(a, b),
    split: (s, [by]) => (by === undefined ? s.split(/\s+/).filter(Boolean) : s.split(by)),
    startswith: (s, [a]) => s.startsWith(a),
    endswith: (s, [a]) => s.endsWith(a),
    strip: (s) => s.trim(),
    title: (s) => s.replace(/\b\w/g, (c) => c.toUpperCase()),
    upper: (s) => s.toUpperCase(),
    lower: (s) => s.toLowerCase(),
  },
  list: {
    append: (l, [x]) => void l.push(x),
    extend: (l, [x]) => void l.push(...py.iter(x)),
    index: (l, [x]) => l.findIndex((y) => same(x, y)),
    count: (l, [x]) => l.filter((y) => same(x, y)).length,
  },
  dict: {
    items: (d) => Object.entries(d),
    keys: (d) => Object.keys(d),
    values: (d) => Object.values(d),
    get: (d, [key, other = null]) => d[key] ?? other,
  },
  array: {
    tolist: (a) => a.tolist(),
    sum: (a, [axis], kw = {}) => np.sum([a], { axis: axis ?? kw.axis }),
    mean: (a) => np.mean([a], {}),
    min: (a) => Math.min(...a.data),
    max: (a) => Math.max(...a.data),
    any: (a) => a.data.some(Boolean),
    all: (a) => a.data.every(Boolean),
    ravel: (a) => new Nd([...a.data]),
    copy: (a) => new Nd([...a.data], a.shape),
    astype: (a, [kind]) => each(kind === py.int ? Math.trunc : kind === py.bool ? Boolean : Number, a),
    reshape: (a, shape) => {
      const wanted = Array.isArray(shape[0]) ? shape[0] : shape, known = wanted.filter((n) => n >= 0).reduce((x, y) => x * y, 1);
      return new Nd([...a.data], wanted.map((n) => (n < 0 ? a.size / known : n)));
    },
  },
};

function indices(key, length) {
  const wrap = (i) => (i < 0 ? i + length : i);
  if (typeof key === "number") return wrap(key);
  if (key instanceof Slice) return key.over(length);
  const list = isArray(key) ? key.data : key;
  return typeof list[0] === "boolean" ? list.flatMap((on, i) => (on ? [i] : [])) : list.map(wrap);
}

/** Places along several axes. */
class Key {
  constructor(places) {
    this.places = places;
  }
}

class Slice {
  constructor(from, to, step) {
    Object.assign(this, { from, to, step: step ?? 1 });
  }
  over(length) {
    const { step } = this, down = step < 0, found = [];
    const end = (value, other) => (value === null ? other : Math.max(down ? -1 : 0, Math.min(value < 0 ? value + length : value, down ? length - 1 : length)));
    for (let i = end(this.from, down ? length - 1 : 0), to = end(this.to, down ? -1 : length); down ? i > to : i < to; i += step) found.push(i);
    return found;
  }
}

/** Round a positive number to significant digits; ties go to the even digit, as in Python. */
function cut(value, precision) {
  const [mantissa, power] = value.toExponential(Math.min(100, precision + 29)).split("e"), figures = mantissa.replace(".", "");
  if (!/^50*$/.test(figures.slice(precision)) || Number(figures[precision - 1]) % 2) return Number(value.toPrecision(precision));
  return Number(`${figures[0]}.${figures.slice(1, precision)}e${power}`);
}

function general(value, precision, alternate) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const sign = value < 0 ? "-" : "", p = precision || 1, short = cut(Math.abs(value), p);
  const power = Number(short.toExponential().split("e")[1]);
  const bare = (s) => (s.includes(".") ? s.replace(/\.?0+$/, "") : s);
  if (power < -4 || power >= p) {
    const [mantissa] = short.toExponential(p - 1).split("e");
    return `${sign}${bare(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  return sign + bare(short.toFixed(Math.max(0, p - 1 - power)));
}

/** Round a number to decimal places; ties, which end exactly in a 5, go to the even digit. */
function fixed(value, places) {
  const exact = Math.abs(value).toFixed(places + 30), kept = exact.slice(0, -30).replace(/\.$/, "");
  if (!/^50*$/.test(exact.slice(-30)) || Number(kept.at(-1)) % 2) return value.toFixed(places);
  return `${value < 0 ? "-" : ""}${kept}`;
}

const py = {
  def: (f, names, defaults, keys = [], rest = ["", ""]) => Object.assign(f, { names, defaults, keys, rest }),
  call(f, args, kw) {
    if (f.native) return f(args, kw ?? {});
    if (!f.names) return f.prototype instanceof Knobs ? Object.assign(new f(), f.defaults, kw) : f(...args);
    return f(...py.bind(f, args, kw));
  },
  bind(f, args, kw) {
    const { names, keys, rest: [star, words] } = f;
    if (!kw && !star && !words && !keys.length && args.length === names.length) return args;
    const left = { ...kw }, other = f.defaults();
    const take = (name, value) => {
      if (value !== undefined) return value;
      if (name in left) {
        const found = left[name];
        delete left[name];
        return found;
      }
      return other[name];
    };
    const bound = [...names.map((name, i) => take(name, args[i])), ...keys.map((name) => take(name))];
    if (star) bound.push(args.slice(names.length));
    if (words) bound.push(left);
    return bound;
  },
  method(of, name, args, kw) {
    const kind = typeof of === "string" ? "string" : isArray(of) ? "array" : Array.isArray(of) ? "list" : null;
    if (kind && METHODS[kind][name]) return METHODS[kind][name](of, args, kw);
    const found = of[name];
    if (found === undefined) return METHODS.dict[name](of, args, kw);
    if (found.native) return found.call(of, args, kw ?? {});
    return found.apply(of, found.names ? py.bind(found, args, kw) : args);
  },
  memo(f) {
    const known = new Map(), most = 64;
    return Object.assign((...args) => {
      const key = JSON.stringify(args);
      if (!known.has(key)) known.set(key, f(...args));
      if (known.size > most) known.delete(known.keys().next().value);
      return known.get(key);
    }, { names: f.names, defaults: f.defaults, keys: f.keys, rest: f.rest });
  },
  getter: (kind, name, get) => Object.defineProperty(kind.prototype, name, { get: get.native ? function () { return get([this], {}); } : get, configurable: true }),
  member: (kind, name, f) => (kind.prototype[name] = f.native ? native(function (args, kw) { return f([this, ...args], kw); }) : f),

  add: (a, b) => (Array.isArray(a) && Array.isArray(b) ? [...a, ...b] : number((x, y) => x + y)(a, b)),
  sub: number((a, b) => a - b),
  mul: (a, b) => (Array.isArray(a) ? Array.from({ length: b }, () => a).flat() : typeof a === "string" ? a.repeat(b) : number((x, y) => x * y)(a, b)),
  div: number((a, b) => a / b),
  floordiv: number((a, b) => Math.floor(a / b)),
  mod: number((a, b) => a - b * Math.floor(a / b)),
  pow: number((a, b) => a ** b),
  bitand: (a, b) => (a instanceof Set ? new Set([...a].filter((x) => b.has(x))) : number((x, y) => x && y)(a, b)),
  bitor: (a, b) => (isArray(a) ? each((x, y) => x || y, a, b) : { ...a, ...b }),
  matmul(a, b) {
    const one = nd(a), other = nd(b), dot = (u, v) => u.reduce((sum, x, i) => sum + x * v[i], 0);
    if (one.ndim === 1 && other.ndim === 1) return dot(one.data, other.data);
    if (one.ndim === 1) return new Nd(other.T.items().map((column) => dot(one.data, column.data)));
    if (other.ndim === 1) return new Nd(one.items().map((row) => dot(row.data, other.data)));
    return np.array([one.items().map((row) => other.T.items().map((column) => dot(row.data, column.data)))]);
  },
  neg: (a) => each((x) => -x, a),
  pos: (a) => a,
  not: (a) => !py.bool(a),
  invert: (a) => each((x) => !x, a),
  eq: (a, b) => (isArray(a) || isArray(b) ? each((x, y) => x === y, a, b) : same(a, b)),
  ne: (a, b) => (isArray(a) || isArray(b) ? each((x, y) => x !== y, a, b) : !same(a, b)),
  lt: number((a, b) => a < b),
  le: number((a, b) => a <= b),
  gt: number((a, b) => a > b),
  ge: number((a, b) => a >= b),
  is: (a, b) => (a ?? null) === b,
  isnot: (a, b) => (a ?? null) !== b,
  isin(a, b) {
    if (typeof b === "string") return b.includes(a);
    if (Array.isArray(b) || isArray(b)) return py.iter(b).some((x) => same(a, x));
    return b instanceof Set ? b.has(a) : a in b;
  },
  notin: (a, b) => !py.isin(a, b),
  and(...values) {
    let found;
    for (const value of values) if (!py.truth((found = value()))) return found;
    return found;
  },
  or(...values) {
    let found;
    for (const value of values) if (py.truth((found = value()))) return found;
    return found;
  },
  truth(x) {
    if (Array.isArray(x)) return x.length > 0;
    if (isArray(x)) return x.size === 1 ? Boolean(x.data[0]) : x.size > 0;
    if (x && Object.getPrototypeOf(x) === Object.prototype) return Object.keys(x).length > 0;
    return Boolean(x);
  },
  iter(x) {
    if (Array.isArray(x)) return x;
    if (isArray(x)) return x.items();
    if (typeof x === "string" || x instanceof Set) return [...x];
    return x.iterate ? x.iterate() : Object.keys(x);
  },
  slice: (from, to, step) => new Slice(from, to, step),
  key: (places) => new Key(places),
  at(x, key) {
    if (typeof x === "string") return key instanceof Slice ? key.over(x.length).map((i) => x[i]).join("") : x.at(key);
    if (Array.isArray(x)) return key instanceof Slice ? key.over(x.length).map((i) => x[i]) : x.at(key);
    if (!isArray(x)) return x[key];
    if (key instanceof Key) {
      const { places } = key;
      if (places.includes(null)) return new Nd(x.data, places[0] === null ? [1, ...x.shape] : [...x.shape, 1]);
      const [rows, columns] = places.map((k, axis) => indices(k, x.shape[axis])), value = (i, j) => x.data[i * x.shape[1] + j];
      if (typeof rows === "number") return typeof columns === "number" ? value(rows, columns) : new Nd(columns.map((j) => value(rows, j)));
      return typeof columns === "number" ? new Nd(rows.map((i) => value(i, columns))) : np.array([rows.map((i) => columns.map((j) => value(i, j)))]);
    }
    const items = x.items(), found = indices(key, x.shape[0]);
    if (typeof found === "number") return items[found];
    return x.ndim === 1 ? new Nd(found.map((i) => items[i])) : new Nd(found.flatMap((i) => items[i].data), [found.length, ...x.shape.slice(1)]);
  },
  put(x, key, value) {
    if (!isArray(x)) return void (x[key] = value);
    if (key instanceof Key) return void (x.data[key.places[0] * x.shape[1] + key.places[1]] = value);
    const found = indices(key, x.shape[0]), many = isArray(value) ? value.data : null;
    (typeof found === "number" ? [found] : found).forEach((i, k) => (x.data[i] = many ? many[k] : value));
  },
  set: (list) => new Set(list),
  format(value, spec) {
    if (isArray(value)) value = value.data[0];
    if (spec === "" || spec === "d") return value === null ? "None" : typeof value === "boolean" ? (value ? "True" : "False") : String(value);
    if (/^\.0%$|^\.\d%$/.test(spec)) return `${fixed(100 * value, Number(spec[1]))}%`;
    const [, sign, comma, places, kind] = /^(\+?)(,?)(?:\.(\d+))?([gfe]?)$/.exec(spec) ?? [];
    const plus = sign && value >= 0 ? "+" : "";
    if (kind === "f") return plus + (comma ? Number(fixed(value, Number(places ?? 6))).toLocaleString("en-US", { minimumFractionDigits: Number(places ?? 6) }) : fixed(value, Number(places ?? 6)));
    if (kind === "g") return plus + general(value, Number(places ?? 6));
    if (comma) return value.toLocaleString("en-US");
    throw new Error(`format ${spec}`);
  },

  // ---------------------------------------------------------------- Python's own functions
  len: native(([x]) => (isArray(x) ? x.length : py.iter(x).length)),
  range: native(([a, b, step = 1]) => {
    const [from, to] = b === undefined ? [0, a] : [a, b];
    return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, i) => from + i * step);
  }),
  list: native(([x = []]) => [...py.iter(x)]),
  tuple: native(([x = []]) => [...py.iter(x)]),
  dict: native(([x = {}], kw) => ({ ...(Array.isArray(x) ? Object.fromEntries(x) : x), ...kw })),
  zip: native((lists) => {
    const all = lists.map(py.iter), length = all.length ? Math.min(...all.map((l) => l.length)) : 0;
    return Array.from({ length }, (_, i) => all.map((l) => l[i]));
  }),
  map: native(([f, ...lists]) => (lists.length === 1 ? py.iter(lists[0]).map((x) => py.call(f, [x])) : py.zip(lists).map((args) => py.call(f, args)))),
  filter: native(([f, list]) => py.iter(list).filter((x) => py.truth(f === null ? x : py.call(f, [x])))),
  enumerate: native(([list, start = 0]) => py.iter(list).map((x, i) => [i + start, x])),
  sum: native(([list, start = 0]) => py.iter(list).reduce((a, b) => py.add(a, typeof b === "boolean" ? Number(b) : b), start)),
  any: native(([list]) => py.iter(list).some(py.truth)),
  all: native(([list]) => py.iter(list).every(py.truth)),
  next: native(([list, other]) => (list.length ? list[0] : other)),
  reversed: native(([list]) => [...py.iter(list)].reverse()),
  sorted: native(([list], { key, reverse }) => {
    const by = key ? (x) => py.call(key, [x]) : (x) => x;
    const found = [...py.iter(list)].map((x) => [by(x), x]).sort(([a], [b]) => py.order(a, b)).map(([, x]) => x);
    return reverse ? found.reverse() : found;
  }),
  order(a, b) {
    if (!Array.isArray(a)) return a < b ? -1 : a > b ? 1 : 0;
    for (let i = 0; i < a.length; i++) if (py.order(a[i], b[i])) return py.order(a[i], b[i]);
    return 0;
  },
  extreme: (sign) => native((args, kw) => {
    const list = args.length === 1 ? py.iter(args[0]) : args, by = kw.key ? (x) => py.call(kw.key, [x]) : (x) => x;
    if (!list.length) return kw.default_ ?? kw.default;
    let found = list[0], best = by(found);
    for (const x of list.slice(1)) if (sign * py.order(by(x), best) > 0) (found = x), (best = by(x));
    return found;
  }),
  abs: elementwise(Math.abs),
  round: native(([x, places]) => (places === undefined ? (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)) : Number(fixed(x, places)))),
  float: native(([x = 0]) => Number(isArray(x) ? x.data[0] : x)),
  int: native(([x = 0]) => Math.trunc(isArray(x) ? x.data[0] : x)),
  callable: native(([f]) => typeof f === "function"),
  str: native(([x]) => py.format(x, "")),
  chr: native(([x]) => String.fromCodePoint(x)),
};
py.min = py.extreme(-1);
py.max = py.extreme(1);
py.bool = py.truth;

const span = (low, high, count) => Array.from({ length: count }, (_, i) => (count === 1 ? low : low + ((high - low) * i) / (count - 1)));
const choose = (test) => (found) => found.reduce((best, x, i) => (Number.isNaN(x) ? best : best < 0 || test(x, found[best]) ? i : best), -1);

/** Sum of numbers in numpy's order, so that it has numpy's last bits: eight sums side by side, long lists by halves. */
function added(list) {
  const n = list.length;
  if (n < 8) return list.reduce((a, b) => a + Number(b), 0);
  if (n > 128) {
    const half = Math.floor(n / 2), cut = half - (half % 8);
    return added(list.slice(0, cut)) + added(list.slice(cut));
  }
  const r = list.slice(0, 8).map(Number), whole = n - (n % 8);
  for (let i = 8; i < whole; i++) r[i % 8] += Number(list[i]);
  const sum = r[0] + r[1] + (r[2] + r[3]) + (r[4] + r[5] + (r[6] + r[7]));
  return list.slice(whole).reduce((a, b) => a + Number(b), sum);
}

const np = {
  array: native(([x]) => {
    if (isArray(x)) return new Nd([...x.data], x.shape);
    const list = py.iter(x);
    if (!list.length || !(Array.isArray(list[0]) || isArray(list[0]))) return new Nd([...list]);
    const inner = list.map((row) => np.array([row]));
    return new Nd(inner.flatMap((row) => row.data), [list.length, ...inner[0].shape]);
  }),
  asarray: native(([x]) => (isArray(x) ? x : Array.isArray(x) ? np.array([x]) : new Nd([x], []))),
  arange: native(([a, b, step = 1]) => new Nd(py.range(b === undefined ? [0, a] : [a, b, step]))),
  linspace: native(([a, b, count = 50]) => new Nd(span(a, b, count))),
  geomspace: native(([a, b, count = 50]) => new Nd(span(Math.log10(a), Math.log10(b), count).map((p, i) => (i === 0 ? a : i === count - 1 ? b : 10 ** p)))),
  zeros: native(([shape]) => np.full([shape, 0])),
  ones: native(([shape]) => np.full([shape, 1])),
  full: native(([shape, value]) => {
    const sides = Array.isArray(shape) ? shape : [shape];
    return new Nd(Array(sides.reduce((a, b) => a * b, 1)).fill(value), sides);
  }),
  concatenate: native(([list]) => new Nd(py.iter(list).flatMap((x) => nd(x).data))),
  maximum: elementwise(Math.max),
  minimum: elementwise(Math.min),
  exp: elementwise(Math.exp),
  expm1: elementwise(Math.expm1),
  log: elementwise(Math.log),
  log2: elementwise(Math.log2),
  log10: elementwise(Math.log10),
  log1p: elementwise(Math.log1p),
  sqrt: elementwise(Math.sqrt),
  floor: elementwise(Math.floor),
  ceil: elementwise(Math.ceil),
  abs: elementwise(Math.abs),
  isfinite: elementwise(Number.isFinite),
  isnan: elementwise(Number.isNaN),
  clip: elementwise((x, low, high) => Math.min(Math.max(x, low), high)),
  where: elementwise((test, a, b) => (test ? a : b)),
  sum: native(([a], { axis }) => {
    const array = nd(a);
    if (axis === undefined || array.ndim === 1) return added(array.data);
    if (axis !== 0) return new Nd(array.items().map((row) => added(row.data)));
    return new Nd(array.T.items().map((column) => column.data.reduce((x, y) => x + Number(y), 0)));
  }),
  prod: native(([a], { axis }) => {
    const array = nd(a), product = (list) => list.reduce((x, y) => x * y, 1);
    return axis === undefined ? product(array.data) : new Nd((axis === 0 ? array.T : array).items().map((row) => product(row.data)));
  }),
  mean: native(([a]) => np.sum([a], {}) / nd(a).size),
  cumsum: native(([a]) => {
    let sum = 0;
    return new Nd(nd(a).data.map((x) => (sum += x)));
  }),
  argmin: native(([a]) => choose((x, y) => x < y)(nd(a).data)),
  argmax: native(([a]) => choose((x, y) => x > y)(nd(a).data)),
  nanargmin: native(([a]) => choose((x, y) => x < y)(nd(a).data)),
  unravel_index: native(([k, [, columns]]) => [Math.floor(k / columns), k % columns]),
  flatnonzero: native(([a]) => new Nd(nd(a).data.flatMap((x, i) => (x ? [i] : [])))),
  convolve: native(([a, b]) => {
    const [u, v] = [nd(a).data, nd(b).data], found = Array(u.length + v.length - 1).fill(0);
    u.forEach((x, i) => v.forEach((y, j) => (found[i + j] += x * y)));
    return new Nd(found);
  }),
};
const math = {
  sqrt: spread(Math.sqrt), log: spread((x, base) => (base ? Math.log(x) / Math.log(base) : Math.log(x))), log10: spread(Math.log10), log2: spread(Math.log2), exp: spread(Math.exp),
  floor: spread(Math.floor), ceil: spread(Math.ceil), prod: native(([x]) => np.prod([x], {})),
  isclose: native(([a, b], { rel_tol = 1e-9, abs_tol = 0 }) => a === b || (Number.isFinite(a) && Number.isFinite(b) && Math.abs(a - b) <= Math.max(rel_tol * Math.max(Math.abs(a), Math.abs(b)), abs_tol))),
  comb: spread((n, k) => {
    let found = 1;
    for (let i = 1; i <= Math.min(k, n - k); i++) found = Math.round((found * (n - Math.min(k, n - k) + i)) / i);
    return k < 0 || k > n ? 0 : found;
  }),
};

// ---------------------------------------------------------------- plotly's figure, as the lectures build it

const WHOLE = ["error_x", "error_y", "paper_bgcolor", "plot_bgcolor"];

/** Properties as plotly.py takes them (title_text, xaxis_range) into a nested object. */
function merge(into, properties) {
  for (const [name, value] of Object.entries(properties)) {
    const path = WHOLE.includes(name) ? [name] : name.split("_");
    let at = into;
    for (const part of path.slice(0, -1)) at = at[part] ??= {};
    const last = path.at(-1), plainly = value && Object.getPrototypeOf(value) === Object.prototype;
    if (plainly && (path.length > 1 || at[last])) merge((at[last] ??= {}), value);
    else at[last] = plainly ? merge({}, value) : value;
  }
  return into;
}

class Trace {
  constructor(type, properties) {
    this.type = type;
    merge(this, properties);
  }
  update = native((_, kw) => merge(this, kw));
}

class Figure {
  constructor(layout = {}) {
    this.data = [];
    this.layout = layout;
  }
  add_trace = native(([trace]) => (this.data.push(trace), this));
  add_traces = native(([traces]) => (this.data.push(...py.iter(traces)), this));
  add_scatter = native((_, kw) => this.add_trace([new Trace("scatter", kw)]));
  add_bar = native((_, kw) => this.add_trace([new Trace("bar", kw)]));
  add_heatmap = native((_, kw) => this.add_trace([new Trace("heatmap", kw)]));
  update_traces = native((_, kw) => (this.data.forEach((trace) => merge(trace, kw)), this));
  update_xaxes = native((_, kw) => (merge((this.layout.xaxis ??= {}), kw), this));
  update_yaxes = native((_, kw) => (merge((this.layout.yaxis ??= {}), kw), this));
  update_layout = native(([more = {}], kw) => (merge(this.layout, { ...more, ...kw }), this));
  add_shape = native((_, kw) => ((this.layout.shapes ??= []).push(kw), this));
  add_annotation = native((_, kw) => ((this.layout.annotations ??= []).push(kw), this));
  add_vline = native((_, { x, ...kw }) => this.add_shape([], { ...kw, type: "line", x0: x, x1: x, xref: "x", y0: 0, y1: 1, yref: "y domain" }));
  add_hline = native((_, { y, ...kw }) => this.add_shape([], { ...kw, type: "line", y0: y, y1: y, yref: "y", x0: 0, x1: 1, xref: "x domain" }));
}

const go = Object.fromEntries(["Scatter", "Bar", "Heatmap"].map((name) => [name, native((_, kw) => new Trace(name.toLowerCase(), kw))]));

/** A figure as plotly.js takes it: arrays for arrays, null for NaN and infinity, nothing for None. */
function plain(value) {
  if (isArray(value)) return plain(value.tolist());
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).filter(([, inner]) => inner !== null && inner !== undefined && typeof inner !== "function").map(([name, inner]) => [name, plain(inner)]));
}

/** Where the sliders stand; lectures have subclasses. */
class Knobs {
  static of(values) {
    return Object.assign(new this(), values).fit();
  }
  fit() {
    return this;
  }
}
Knobs.prototype.replace = native(function (_, kw) {
  return Object.assign(Object.create(Object.getPrototypeOf(this)), this, kw);
});
