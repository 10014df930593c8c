// What stands in for functions of the package that lean on scipy, checks or adaptive quadrature. N: by qualified name.

const N = {};
const T = "workbench.core.theory.";
for (const name of ["whole", "real", "positive", "probability"]) N[`${T}_checks.${name}`] = native(([, value]) => value);
N[`${T}_checks.numbers`] = native(([, value]) => np.asarray([value]));
N[`${T}_checks.choice`] = native(() => null);
N[`${T}_checks.divides`] = native(() => null);

const logFactorials = [0];
function logFactorial(n) {
  while (logFactorials.length <= n) logFactorials.push(logFactorials.at(-1) + Math.log(logFactorials.length));
  return logFactorials[n];
}

/** P(at least `least` of n, each with probability p), for many p: one tail or the other, whichever is small. */
function atLeast(least, n, chances) {
  const ways = Array.from({ length: n + 1 }, (_, j) => logFactorial(n) - logFactorial(j) - logFactorial(n - j));
  return chances.map((p) => {
    if (p <= 0) return 0;
    if (p >= 1) return 1;
    const upper = least > n * p, odds = p / (1 - p);
    let j = upper ? least : least - 1, sum = 0, term = Math.exp(ways[j] + j * Math.log(p) + (n - j) * Math.log1p(-p));
    for (; upper ? j <= n : j >= 0; upper ? j++ : j--) {
      sum += term;
      if (term < sum * 1e-17) break;
      term *= upper ? ((n - j) / (j + 1)) * odds : j / (n - j + 1) / odds;
    }
    return upper ? sum : 1 - sum;
  });
}
N[`${T}order_statistics.order_survival`] = native(([survival, k, n]) => {
  const { data, shape } = nd(survival);
  return new Nd(atLeast(n - k + 1, n, data), shape);
});

/** H_x by the asymptotic series, for whole x by the sum. */
function harmonic(x) {
  let below = 0;
  if (Number.isInteger(x) && x < 1000) {
    for (let i = x; i >= 1; i--) below += 1 / i;
    return below;
  }
  let z = x + 1;
  for (; z < 12; z++) below -= 1 / z;
  const w = 1 / (z * z);
  return below + Math.log(z) - 0.5 / z - w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w / 132)))) + 0.5772156649015329;
}
N[`${T}order_statistics.harmonic`] = native(([x]) => harmonic(x));

/** Mean of a time from its survival function; as `workbench.core.theory._quadrature`, whose nodes and weights these are. */
N[`${T}_quadrature.mean_time`] = native(([survival, start = 0]) => {
  const { nodes, weights } = DATA.quadrature;
  const left = (times) => py.call(survival, [new Nd(times.map((t) => start + t))]).data;
  const powers = Array.from({ length: 250 }, (_, i) => 2 ** (i - 150)), found = left(powers);
  const rest = found.map((p, i) => p * powers[i]), most = Math.max(...rest);
  const first = found.findIndex((p, i) => (1 - p) * powers[i] > 1e-14 * most);
  let last = rest.length - 1;
  while (last >= 0 && rest[last] <= 1e-17 * most) last--;
  const edges = powers.slice(Math.max(first - 1, 0), Math.max(last + 1, first) + 1);
  const panels = (ends) => {
    const times = [];
    for (const [a, b] of ends) for (const node of nodes) times.push(a + (b - a) / 2 + ((b - a) / 2) * node);
    const values = left(times);
    return ends.map(([a, b], i) => {
      let sum = 0;
      for (let k = 0; k < nodes.length; k++) sum += values[i * nodes.length + k] * weights[k];
      return (sum * (b - a)) / 2;
    });
  };
  let ends = edges.slice(1).map((b, i) => [edges[i], b]), coarse = panels(ends), total = 0;
  const tolerance = 1e-10 * (start + edges[0] + coarse.reduce((a, b) => a + b, 0)), split = 0.5 * (3 - Math.sqrt(5));
  for (let depth = 0; depth < 70 && ends.length; depth++) {
    const halves = ends.flatMap(([a, b]) => [[a, a + split * (b - a)], [a + split * (b - a), b]]), pieces = panels(halves);
    const again = [], known = [];
    coarse.forEach((before, i) => {
      const fine = pieces[2 * i] + pieces[2 * i + 1];
      if (Math.abs(fine - before) <= tolerance) return void (total += fine);
      again.push(halves[2 * i], halves[2 * i + 1]);
      known.push(pieces[2 * i], pieces[2 * i + 1]);
    });
    [ends, coarse] = [again, known];
  }
  return start + edges[0] + total + coarse.reduce((a, b) => a + b, 0);
});

N[`${T}round_times.tree_time`] = native(([n, depth, k, load, shift, rate, transfer]) => {
  if (depth !== 1 || transfer) throw new Error("a star without a port is all that is known here");
  return load * shift + (load / rate) * added(Array.from({ length: k }, (_, i) => 1 / (n - k + 1 + i)));
});
N[`${T}coded_reduce.exact_load`] = native(([n, depth, s]) => {
  let sum = 0;
  for (let layer = 1; layer <= depth; layer++) sum += (n / (s + 1)) ** layer;
  return 1 / sum;
});
N[`${T}ye_abbe.cegc_survival`] = native(([times, d, m, lambda1, lambda2, t1, t2]) => {
  const least = d * t1 + t2 / m, rates = [lambda1 / d, lambda2 * m], slow = Math.min(...rates), fast = Math.max(...rates);
  return each((t) => {
    const x = Math.max(t - least, 0), gap = (fast - slow) * x;
    return Math.exp(-slow * x) * (1 + slow * x * (gap > 0 ? -Math.expm1(-gap) / gap : 1));
  }, times);
});
N[`${T}_residuals.mean_errors`] = native(([n, s]) => np.array([DATA.residuals[n][s]]));

// ---------------------------------------------------------------- figures' looks

const F = "workbench.lab.figures.style.";
N[`${F}scheme_style`] = native(([name]) => DATA.styles[name]);
N[`${F}Style`] = native(([color, dash, symbol]) => ({ color, dash, symbol }));
N[`${F}palette`] = native(([theme]) => DATA.palettes[theme]);
N[`${F}fade`] = native(([color, opacity]) => `rgba(${[1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)).join(",")},${opacity === 1 ? "1.0" : opacity})`);
N[`${F}new_figure`] = native(([theme, title, subtitle = "", height = 640]) => {
  const heading = { text: title, subtitle: { text: subtitle, font: { size: 16, color: DATA.palettes[theme].muted } }, y: 1 - 22 / height };
  return new Figure({ title: heading, height, template: DATA.templates[theme] });
});
N["workbench.lab.widgets.plots.plot.low"] = native(([figure, most]) => {
  const height = Math.min(most, figure.layout.height ?? most);
  return figure.update_layout([], { height, title_y: 1 - 22 / height });
});
N["workbench_lectures.exercises.Exercise"] = native((_, kw) => kw);

// ---------------------------------------------------------------- lectures 2 and 5

N["workbench_lectures.by_hand.code_of"] = native(([draw]) => {
  const { matrix, decoded } = DATA.codes[draw];
  const decode = native(([answered]) => {
    const [weights, residual] = decoded[[...answered].join("")];
    return Object.assign([np.array([weights]), residual], { weights: np.array([weights]) });
  });
  return { matrix: np.array([matrix]), decode };
});
N["workbench_lectures.approximate.Approximate.slow_ones"] = native(([{ draw, workers, slow }]) => new Nd(DATA.uniforms[draw].slice(0, workers).map((u) => u < slow)));
N["workbench_lectures.approximate.holders"] = native(([{ workers: n, copies: s, code }]) => {
  const holds = (w, p) => (code === "FRC" ? Math.floor(w / s) === Math.floor(p / s) : (p - w + n) % n < s);
  return np.array([Array.from({ length: n }, (_, w) => Array.from({ length: n }, (_, p) => holds(w, p)))]);
});
