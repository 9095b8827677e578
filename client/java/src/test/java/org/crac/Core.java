package org.crac;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;

/** Stands for CRaC's class of the same name: a test tells its resources of a checkpoint. */
public final class Core {
    private static final List<WeakReference<Resource>> RESOURCES = new ArrayList<>();

    private static final Context<Resource> GLOBAL = new Context<>() {
        @Override
        public synchronized void register(Resource resource) {
            RESOURCES.add(new WeakReference<>(resource));
        }

        @Override
        public void beforeCheckpoint(Context<? extends Resource> context) throws Exception {
            for (WeakReference<Resource> each : RESOURCES) {
                Resource resource = each.get();

                if (resource != null) {
                    resource.beforeCheckpoint(this);
                }
            }
        }

        @Override
        public void afterRestore(Context<? extends Resource> context) throws Exception {
            for (WeakReference<Resource> each : RESOURCES) {
                Resource resource = each.get();

                if (resource != null) {
                    resource.afterRestore(this);
                }
            }
        }
    };

    private Core() {
    }

    public static Context<Resource> getGlobalContext() {
        return GLOBAL;
    }
}
