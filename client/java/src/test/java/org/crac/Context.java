package org.crac;

/** Stands for CRaC's class of the same name. */
public abstract class Context<R extends Resource> implements Resource {
    public abstract void register(R resource);
}
